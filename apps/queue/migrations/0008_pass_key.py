from django.db import migrations

from apps.runtime.migration_ops import index_beside_writes

# Of a key, whatever limits let its runs in: the gate without its limit.
GATE = r"regexp_replace(gate, '^(concurrency_limit/[0-9]+/)[0-9]+/', '\1*/')"


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("chrono_queue", "0007_pass")]

    operations = index_beside_writes(
        table="chrono_pass",
        name="chrono_pass_key",
        on=f"({GATE}) WHERE starts_with(gate, 'concurrency_limit/')",
    )
