#!/bin/sh
# tools/debian-packages.sh [PACKAGE...]: install these Debian packages, or else those that some tests need (a real
# Slurm, a real browser) where they are missing, if we may: as root on Debian, unless APT=no. Otherwise nothing happens,
# and what needs them does without: those tests skip and name the command that helps.
# No daemon is left running or enabled: the tests start their own, and stop them.
set -eu
cd "$(dirname "$0")/.."
. tools/lib.sh

log=$state/apt.log
PATH=$PATH:/usr/sbin:/sbin

{ [ "${APT:-yes}" = yes ] && [ "$(id -u)" = 0 ] && grep -qsx 'ID=debian' /etc/os-release; } || exit 0

missing=$*
if [ $# = 0 ]; then
    for pair in slurmctld:slurmctld slurmd:slurmd sbatch:slurm-client munged:munge chromium:chromium; do
        command -v "${pair%%:*}" >/dev/null || missing="$missing ${pair##*:}"
    done
fi
missing=${missing# }
[ -n "$missing" ] || exit 0

mkdir -p "$state"
say "Installing Debian packages: $missing ..."
export DEBIAN_FRONTEND=noninteractive

# Debian asks this script before it starts a daemon; 101 means no
policy=/usr/sbin/policy-rc.d
if ! [ -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    trap 'exit 130' INT TERM
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
fi

apt="apt-get -q -y -o Acquire::Retries=2 -o Acquire::http::Timeout=20 -o DPkg::Lock::Timeout=60"
# shellcheck disable=SC2086 # these are lists of words
if $apt update >"$log" 2>&1 && $apt install --no-install-recommends $missing >>"$log" 2>&1; then
    if [ -d /run/systemd/system ]; then
        for unit in munge slurmd slurmctld; do
            case " $missing " in *" $unit "*) systemctl disable --quiet "$unit" >>"$log" 2>&1 || true ;; esac
        done
    fi
else
    say "They could not be installed ($log says why); the tests that need them will skip." >&2
fi
