# Sourced by the other scripts: finds Python 3.11 or newer, makes a virtual environment and installs this project in it.
# usage: use_venv FOLDER EXTRAS [pip options, such as constraints]; afterwards FOLDER/bin is first in PATH.

find_python() {
    local name version found=""
    for name in ${PYTHON:-python3 python3.13 python3.12 python3.11 python}; do
        version=$("$name" --version 2>&1) || continue # there is no such program, or it only stands for a Python that is not installed
        found="$found $version ($name);"
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$name"
            return
        fi
    done
    echo "expected Python 3.11 or newer, found:${found:- none}" >&2
    echo "install one (Debian, Ubuntu: apt install python3.11 python3.11-venv; macOS: brew install python)," >&2
    echo "or name it: PYTHON=/path/to/python3.12 $0" >&2
    return 1
}

use_venv() {
    local folder=$1 extras=$2 python stamp
    shift 2
    if [ ! -x "$folder/bin/python" ]; then
        python=$(find_python) || exit 1
        if ! "$python" -m venv "$folder"; then
            rm -rf "$folder"
            echo "$python can't make virtual environments; install its venv module (on Debian: apt install python3-venv)" >&2
            exit 1
        fi
    fi
    # Installing again is skipped while nothing that matters has changed.
    stamp=$(cat pyproject.toml - <<<"$extras $*" | cksum | tr ' ' '-')
    if [ ! -e "$folder/.installed-$stamp" ]; then
        echo "installing into $folder (once) ..." >&2
        if ! "$folder/bin/python" -m pip install --quiet --disable-pip-version-check -e ".$extras" "$@"; then
            echo "could not install the packages that are needed; is there a network, or a package index that pip knows?" >&2
            exit 1
        fi
        rm -f "$folder"/.installed-*
        touch "$folder/.installed-$stamp"
    fi
    PATH="$PWD/$folder/bin:$PATH"
    # One thread for linear algebra: the arrays are small, and results don't depend on the number of cores.
    export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
}
