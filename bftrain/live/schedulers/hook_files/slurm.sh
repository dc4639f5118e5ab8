#!/bin/sh
# Tells bftrain that a job of Slurm ended (or started): one small file in a spool folder, and nothing else.
#
# In slurm.conf both:   PrologSlurmctld=THIS FILE
#                       EpilogSlurmctld=THIS FILE
# and slurmctld is restarted: after scontrol reconfigure they are listed, but do not run. With pilots the epilog is
# enough, or JobCompType=jobcomp/script and JobCompLoc=THIS FILE.
#
# It can make no job fail and no job wait: it starts no other program, waits for nothing, writes only while bftrain
# reads (.reader is there then), and ends with 0 whatever happens. The last word of a line, '.', says that it is whole.
# The last three digits of the job are in the name, and no file is written over: of what is not read there are so
# many files at most.
set +e
set -C
umask 022
spool='@SPOOL@'
case ${SLURM_SCRIPT_CONTEXT:-} in
prolog*) what=start ;;
*) what=end ;;
esac
job=${SLURM_JOB_ID:-${JOBID:-}}
case $job in
'' | *[!0-9]*) exit 0 ;;
esac
slot=${job#"${job%???}"}
if [ -f "$spool/.reader" ]; then
    { printf 'bftrain1 %s %s %s %s %s %s .\n' "$what" "$job" "${SLURM_JOB_RESTART_COUNT:-0}" \
        "${SLURM_JOB_NODELIST:-${NODES:-}}" "${SLURM_JOB_PARTITION:-${PARTITION:-}}" "${SLURM_JOB_UID:-${UID:-}}" \
        >"$spool/$what.${slot:-$job}"; } 2>/dev/null
fi
exit 0
