#!/bin/sh
# Builds OpenPBS from its source and runs it on this machine alone: a server, and three nodes in networks of their own.
# For root on a machine for tests: it writes /opt/pbs, /var/spool/pbs*, /etc/pbs*.conf and four lines of /etc/hosts.
#
#   tools/openpbs.sh build FOLDER      FOLDER is a checkout of https://github.com/openpbs/openpbs; five minutes
#   tools/openpbs.sh start             the server pbs1, the nodes n1 to n3, queues for pilots and for other jobs
#   tools/openpbs.sh run COMMAND...    on the host pbs1, with PBS's commands on PATH
#   tools/openpbs.sh stop              ends all of it
#
# Debian's packages: autoconf automake libtool-bin g++ make pkg-config swig postgresql libpq-dev libhwloc-dev libedit-dev
# libical-dev libncurses-dev libexpat1-dev libssl-dev libcjson-dev python3-dev tcl-dev tk-dev libx11-dev libxt-dev zlib1g-dev
set -eu
PATH=/opt/pbs/bin:$PATH
nodes="1 2 3"

on() { # HOST COMMAND...: run on the server's host, or on that of a node
    host=$1
    shift
    net=
    [ "$host" = pbs1 ] || net=--net=/run/netns/pbs-$host
    nsenter $net --uts=/run/pbs-"$host" "$@"
}

make_hosts() {
    ip link add pbs0 type bridge
    ip addr add 10.77.0.1/24 dev pbs0
    ip link set pbs0 up
    hosts="10.77.0.1 pbs1"
    for i in $nodes; do
        ip netns add pbs-n"$i"
        ip link add pbs-n"$i" type veth peer name eth0 netns pbs-n"$i"
        ip link set pbs-n"$i" master pbs0 up
        ip -n pbs-n"$i" addr add 10.77.0.1"$i"/24 dev eth0
        ip -n pbs-n"$i" link set eth0 up
        ip -n pbs-n"$i" link set lo up
        hosts="$hosts
10.77.0.1$i n$i"
    done
    for host in pbs1 n1 n2 n3; do
        : >/run/pbs-$host
        unshare --uts=/run/pbs-$host hostname $host
    done
    grep -q ' pbs1$' /etc/hosts || echo "$hosts" >>/etc/hosts
}

configure() { # HOST HOME SERVER MOM: PBS's settings of a host
    printf 'PBS_EXEC=/opt/pbs\nPBS_HOME=%s\nPBS_SERVER=pbs1\nPBS_CORE_LIMIT=0\n' "$2"
    printf 'PBS_START_%s\n' "SERVER=$3" "SCHED=$3" "COMM=$3" "MOM=$4"
}

start_node() { # NODE: the settings and the folder of this node are seen by its own processes only
    configure "$1" /var/spool/pbs-"$1" 0 1 >/etc/pbs-"$1".conf
    mkdir -p /var/spool/pbs-"$1"
    on "$1" unshare -m sh -ec "mount --make-rprivate /; mount --bind /etc/pbs-$1.conf /etc/pbs.conf
        /opt/pbs/libexec/pbs_habitat
        grep -q usecp /var/spool/pbs-$1/mom_priv/config || echo '\$usecp *:/ /' >>/var/spool/pbs-$1/mom_priv/config
        /opt/pbs/sbin/pbs_mom"
}

case ${1:-} in
build)
    cd "$2"
    [ -x configure ] || ./autogen.sh
    ./configure --prefix=/opt/pbs --with-pbs-server-home=/var/spool/pbs --disable-static PYTHON=/usr/bin/python3
    make -j"$(nproc)"
    make install
    chmod 4755 /opt/pbs/sbin/pbs_iff /opt/pbs/sbin/pbs_rcp
    ;;
start)
    make_hosts
    configure pbs1 /var/spool/pbs 1 0 >/etc/pbs.conf
    PBS_DATA_SERVICE_USER=postgres on pbs1 /opt/pbs/libexec/pbs_init.d start
    for i in $nodes; do
        start_node n"$i"
        on pbs1 qmgr -c "create node n$i" || true # it is known after the first start
    done
    for line in 'server flatuid = True' 'queue workq Priority = 150' \
        'sched preempt_order = D'; do
        on pbs1 qmgr -c "set $line"
    done
    on pbs1 qmgr -c 'create queue preempt queue_type = Execution, Priority = 10, enabled = True, started = True' || true
    ;;
run)
    shift
    on pbs1 "$@"
    ;;
stop)
    on pbs1 /opt/pbs/libexec/pbs_init.d stop || true
    for i in $nodes; do
        ip netns pids pbs-n"$i" | xargs -r kill
        ip netns del pbs-n"$i"
        umount /run/pbs-n"$i"
        rm /run/pbs-n"$i"
    done
    umount /run/pbs-pbs1
    rm /run/pbs-pbs1
    ip link del pbs0
    ;;
*)
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac
