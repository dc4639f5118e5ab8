#!/bin/sh
# Tells bftrain that a job of Slurm ended (or started): one small file in a spool folder.
#
# Set both in slurm.conf:   PrologSlurmctld=THIS FILE
#                           EpilogSlurmctld=THIS FILE
# Then restart slurmctld: scontrol reconfigure is not enough. With pilots the epilog is sufficient, or
# JobCompType=jobcomp/script and JobCompLoc=THIS FILE.
#
# It cannot fail or delay a job: it starts no other program, never waits, writes only while bftrain reads (the file
# .reader exists), and always exits with 0. The last word of a line, '.', marks a complete line. The last three digits
# of the job are in the file name, and existing files are not overwritten, so the number of unread files is limited.
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
