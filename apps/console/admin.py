"""Which pages there are."""

from django.contrib import admin
from django.contrib.auth.models import Group, User

from apps.console import access, engine, jobs, past, queues, runs, targets
from apps.console.models import (
    DeadLetter,
    Occurrence,
    Partition,
    QueuePause,
    Run,
    Target,
    Worker,
)
from apps.jobs.models import Job, JobRevision
from apps.tenants.models import ApiKey, AuditEvent, Tenant

admin.site.unregister([User, Group])
admin.site.register(User, access.PeopleAdmin)
admin.site.register(Job, jobs.JobAdmin)
admin.site.register(JobRevision, past.RevisionAdmin)
admin.site.register(Run, runs.RunAdmin)
admin.site.register(DeadLetter, runs.DeadLetterAdmin)
admin.site.register(Occurrence, runs.OccurrenceAdmin)
admin.site.register(QueuePause, queues.QueuePauseAdmin)
admin.site.register(Target, targets.TargetAdmin)
admin.site.register(Tenant, access.TenantAdmin)
admin.site.register(ApiKey, access.ApiKeyAdmin)
admin.site.register(AuditEvent, access.AuditEventAdmin)
admin.site.register(Worker, engine.WorkerAdmin)
admin.site.register(Partition, engine.PartitionAdmin)
