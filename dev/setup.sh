#!/bin/sh
# Makes .venv with what the requirements files name, and remakes it when they change.
# Every failure is one line and a non-zero exit.
set -u
cd "$(dirname "$0")/.." || exit 1

fail() {
    echo "error: $*" >&2
    exit 1
}

# A name on the PATH may be a shim that refuses to run, so each candidate is run.
new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 12))' >/dev/null 2>&1
}

find_python() {
    for version in 3.13 3.14 3.12; do
        for candidate in "python$version" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/python; do
            if new_enough "$candidate"; then
                echo "$candidate"
                return
            fi
        done
    done
    if new_enough python3; then
        echo python3
    fi
}

touch .write-test 2>/dev/null || fail "no write permission in $(pwd)"
rm -f .write-test

stamp=.venv/requirements.stamp
wanted=$(cat requirements.txt requirements-dev.txt)
if [ -x .venv/bin/python ] && .venv/bin/python -c '' 2>/dev/null &&
    [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
    exit 0
fi

if ! { [ -x .venv/bin/python ] && new_enough .venv/bin/python &&
    .venv/bin/python -m pip --version >/dev/null 2>&1; }; then
    python=${PYTHON:-$(find_python)}
    [ -n "$python" ] ||
        fail "Chrono needs Python 3.12 or newer; $(python3 --version 2>/dev/null || echo 'no python3') was found: install one, or name it as PYTHON=/path/to/python"
    new_enough "$python" || fail "$python is not a Python of 3.12 or newer"
    "$python" -c 'import venv, ensurepip' 2>/dev/null ||
        fail "$("$python" --version 2>&1) has no venv module: install it (Debian: apt-get install python3-venv)"
    echo "making .venv with $("$python" --version 2>&1)"
    said=$("$python" -m venv --clear .venv 2>&1) ||
        fail "cannot make .venv: $(echo "$said" | tail -n 1)"
fi

echo "installing what requirements-dev.txt names"
said=$(.venv/bin/python -m pip install --quiet --disable-pip-version-check \
    -r requirements-dev.txt 2>&1) ||
    fail "pip could not install the requirements: $(echo "$said" | grep -i error | tail -n 1)"
said=$(.venv/bin/python -m pip check 2>&1) ||
    fail "the requirements do not fit together: $(echo "$said" | head -n 1)"
echo "$wanted" >"$stamp" || fail "cannot write $stamp"
