#!/usr/bin/env bash
# guest.sh runs a program in a throw-away QEMU guest whose kernel has Soft-RoCE (rdma_rxe), and
# returns the status of the program.
#
#   scripts/rdma/guest.sh [options] [--] BINARY [ARG...]
#   go test -exec scripts/rdma/guest.sh ./package
#
# It needs bash, coreutils, apt-get, dpkg-deb, xz and the keyring of Debian's archive, and no root.
# It installs nothing: kernel, user space and QEMU are Debian packages that are unpacked under
# $RXE_CACHE. Status 77: this machine cannot have them.
#
# Options
#   -k KERNEL  stable: 6.12 (default); bpo: 7.x of the backports
#   -c CPUS    of the guest. 1, the default: with more, the emulator tears words
#   -m MIB     memory of the guest (2048)
#   -t SECS    limit of the run (300)
#   -e K=V     environment of the program; can be repeated
#   -f PATH    file or directory for the program's working directory; can be repeated
#   -o DIR     gets what the program writes into $OUT
#   -P FILE    gets the process id of QEMU: kill -9 is the loss of power
#   -p         two devices more, rxp0 and rxp1, on the ends of a veth pair
#   -x         status 126 if the kernel has logged an oops or a warning
#   -v         print the console of the kernel
#   -b         fill the cache only
# Environment: RXE_CACHE (~/.cache/txnode-rdma), RXE_ACCEL (kvm or tcg; by default what works),
#   RXE_MIRROR (a Debian mirror; by default that of the host), RXE_CPU (max), RXE_APPEND (more
#   arguments of the kernel). RXE_NODE=1 RXE_NET=stream,server=on,addr.type=unix,addr.path=SOCKET
#   and RXE_NODE=2 RXE_NET=stream,server=off,addr.type=unix,addr.path=SOCKET,reconnect-ms=500 join
#   two guests by a network: eth0 in them, 10.1.0.1 and 10.1.0.2, and a device rxe1 on it.
# In the guest: RDMA_DEV=rxe0, RDMA_GID_INDEX=1, directory /job, user 0, and in PATH the tools of
#   rdma-core and iproute2.
# Status: that of the program; 124: the limit; 125: the guest died or did not start; 126: see -x;
#   77: no download, or a tool is missing; 2: wrong use.
set -euo pipefail
die(){ echo "guest: $*" >&2; exit "${RC:-125}"; }
KERNEL=stable CPUS=1 MEM=2048 LIMIT=300 OUT='' PIDFILE='' PAIR=0 STRICT=0 VERBOSE=0 BUILDONLY=0 ENVS=() FILES=()
while getopts k:c:m:t:e:f:o:P:pxvbh o; do case $o in
  k) KERNEL=$OPTARG;; c) CPUS=$OPTARG;; m) MEM=$OPTARG;; t) LIMIT=$OPTARG;; e) ENVS+=("$OPTARG");;
  f) FILES+=("$OPTARG");; o) OUT=$OPTARG;; P) PIDFILE=$OPTARG;; p) PAIR=1;; x) STRICT=1;; v) VERBOSE=1;; b) BUILDONLY=1;;
  *) sed -n '2,/^set -/p' "$0" | sed 's/^# \{0,1\}//;$d' >&2; exit 2;; esac; done
shift $((OPTIND-1))
C=${RXE_CACHE:-$HOME/.cache/txnode-rdma}
# by default the mirror that the host's apt has
MIRROR=${RXE_MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null | head -1 || true)}
[ -n "$MIRROR" ] || RC=77 die "this machine has no Debian mirror: set RXE_MIRROR"
KEYRING=${RXE_KEYRING:-/usr/share/keyrings/debian-archive-keyring.gpg}
case $KERNEL in stable) SUITE=trixie;; bpo) SUITE=trixie-backports;; *) RC=2 die "unknown kernel '$KERNEL'";; esac
[ $BUILDONLY = 1 ] || [ $# -ge 1 ] || RC=2 die "no binary given (-h for help)"

# ---------------------------------------------------------------- cache
apt_in(){ # SUITE COMMAND... : apt against one suite, an empty dpkg status, nothing of the host's
  local s=$1 d=$C/apt/$1 cmd=$2; shift 2
  if [ ! -e "$d/sources.list" ]; then
    mkdir -p "$d/lists/partial" "$d/cache/archives/partial"; : > "$d/status"
    local opt="signed-by=$KEYRING arch=amd64"; case $MIRROR in *snapshot*) opt+=" check-valid-until=no";; esac
    echo "deb [$opt] $MIRROR $s main" > "$d/sources.tmp"
    case $s in *-backports) echo "deb [$opt] $MIRROR ${s%-backports} main" >> "$d/sources.tmp";; esac
    mv "$d/sources.tmp" "$d/sources.list"
    apt_in "$s" apt-get -qq update
  fi
  "$cmd" -o Dir::Etc::sourcelist="$d/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::Etc::preferencesparts=/dev/null \
    -o Dir::State::lists="$d/lists" -o Dir::State::status="$d/status" -o Dir::Cache="$d/cache" \
    -o APT::Architecture=amd64 -o APT::Architectures=amd64 -o APT::Sandbox::User="$(id -un)" "$@"
}
unpack(){ local to=$1 d; shift; mkdir -p "$to"; for d in "$@"; do dpkg-deb -x "$d" "$to"; done; }
closure(){ # DEST PKG... : PKG and all it depends on, unpacked into DEST
  local to=$1; shift
  rm -f "$C"/apt/trixie/cache/archives/*.deb 2>/dev/null || true
  apt_in trixie apt-get -y -qq -d --no-install-recommends install "$@" >/dev/null
  unpack "$to" "$C"/apt/trixie/cache/archives/*.deb
  (cd "$C/apt/trixie/cache/archives"; ls *.deb) > "$to.manifest"
  rm -f "$C"/apt/trixie/cache/archives/*.deb
}
build_qemu(){ [ -e "$C/qemu.ok" ] && return; echo "guest: fetching QEMU" >&2
  rm -rf "$C/qemu"; closure "$C/qemu" qemu-system-x86
  rm -rf "$C"/qemu/usr/share/{doc,man,locale,i18n,perl,info,icons} "$C"/qemu/usr/bin/qemu-system-{i386,x86_64-microvm}; touch "$C/qemu.ok"; }
build_base(){ [ -e "$C/base-$KERNEL.ok" ] && return; echo "guest: building the $KERNEL guest" >&2
  local u=$C/user k=$C/kroot-$KERNEL w=$C/w-$KERNEL p kv img debs=()
  if [ ! -e "$C/user.ok" ]; then rm -rf "$u"
    closure "$u" libc6 busybox-static dash ibverbs-providers ibverbs-utils rdmacm-utils perftest iproute2 libstdc++6; touch "$C/user.ok"; fi
  # kernel: metapackage -> linux-image-X (newer Debian splits it in -binary and -modules)
  img=$(apt_in "$SUITE" apt-cache show "linux-image-amd64/$SUITE" | grep -m1 '^Depends:' | grep -o 'linux-image-[^ ,]*' | head -1) || true
  [ -n "$img" ] || die "no kernel found in $SUITE"; kv=${img#linux-image-}
  for p in "$img" "linux-binary-$kv" "linux-modules-$kv"; do
    apt_in "$SUITE" apt-cache show "$p" >/dev/null 2>&1 && debs+=("$p"); done
  rm -rf "$k" "$k.d"; mkdir -p "$k.d"; (cd "$k.d" && apt_in "$SUITE" apt-get -qq download "${debs[@]}")
  ls "$k.d" > "$C/kernel-$KERNEL.manifest"; unpack "$k" "$k.d"/*.deb; rm -rf "$k.d"
  local md=''; for p in "$k/usr/lib/modules/$kv" "$k/lib/modules/$kv"; do [ -d "$p" ] && md=$p; done
  for p in "$md/vmlinuz" "$k/boot/vmlinuz-$kv"; do if [ -e "$p" ]; then cp "$p" "$C/vmlinuz-$KERNEL"; fi; done
  # root: merged-usr, busybox applets, the tools, every small library of the closure
  rm -rf "$w"; mkdir -p "$w"/{proc,sys,dev,tmp,run,job,out,root,modules,etc/libibverbs.d,usr/{bin,lib64,lib/x86_64-linux-gnu/libibverbs}}
  ln -s usr/bin "$w/bin"; ln -s usr/bin "$w/sbin"; ln -s bin "$w/usr/sbin"; ln -s usr/lib "$w/lib"; ln -s usr/lib64 "$w/lib64"; mkdir "$w/var"; ln -s ../run "$w/var/run"
  local l=usr/lib/x86_64-linux-gnu
  for p in ip rdma tc; do cp -L "$(ls -d "$u"/usr/{,s}bin/$p 2>/dev/null | head -1)" "$w/usr/bin/$p" || die "no $p"; done
  for p in "$u"/usr/bin/{ibv_*,ib_*,raw_*,rping,ucmatose,udaddy,busybox,dash}; do [ -e "$p" ] && cp -L "$p" "$w/usr/bin/"; done
  for p in "$u"/$l/*.so*; do case ${p##*/} in lib*crypto*|libssl*|libkrb5*|libgssapi*|libdb-*|libsystemd*|libsepol*|libsemanage*|libpam*|libdebconf*) ;; *) cp -a "$p" "$w/$l/";; esac; done
  cp -a "$u"/$l/libibverbs/lib{rxe,siw}-*.so "$w/$l/libibverbs/"; cp -a "$u"/etc/libibverbs.d/{rxe,siw}.driver "$w/etc/libibverbs.d/"
  cp -aL "$u/usr/lib64/ld-linux-x86-64.so.2" "$w/usr/lib64/"
  ln -s dash "$w/usr/bin/sh"   # not busybox's: its shell runs its own ip and tc applets whatever PATH says
  for p in $("$u/usr/bin/busybox" --list); do [ -e "$w/usr/bin/$p" ] || ln -s busybox "$w/usr/bin/$p"; done
  echo root:x:0:0:root:/root:/bin/sh > "$w/etc/passwd"; echo root:x:0: > "$w/etc/group"; echo '127.0.0.1 localhost' > "$w/etc/hosts"
  # modules, uncompressed, in dependency order ("depends=" read straight from .modinfo)
  local -A path=() seen=(); local order=() f b
  while read -r f; do b=${f##*/}; b=${b%%.ko*}; path[${b//-/_}]=$f; done < <(find "$md/kernel" -name '*.ko*')
  addmod(){ local m=${1//-/_} d; [ -z "${seen[$m]:-}" ] || return 0; seen[$m]=1; [ -n "${path[$m]:-}" ] || return 0   # absent = built in
    case ${path[$m]} in *.xz) xz -dc "${path[$m]}";; *.zst) zstd -dcq "${path[$m]}";; *) cat "${path[$m]}";; esac > "$w/modules/$m.ko"
    for d in $(tr '\0' '\n' < "$w/modules/$m.ko" | grep -a -m1 '^depends=' | sed 's/^depends=//;s/,/ /g'); do addmod "$d"; done
    order+=("$m"); }
  # crc32*/crc32c*: asked for by name at run time, so no module lists them as a dependency
  for b in crc32_generic crc32_pclmul crc32c_generic libcrc32c virtio_pci virtio_console 9p 9pnet_virtio dummy veth sch_netem virtio_net bridge ib_core ib_uverbs ib_umad rdma_ucm rdma_rxe; do addmod $b; done
  case " ${order[*]} " in *" rdma_rxe "*) ;; *) die "kernel $kv has no rdma_rxe";; esac
  printf '%s\n' "${order[@]}" > "$w/modules/order"
  cat > "$w/init" <<'INIT'
#!/bin/busybox sh
export PATH=/usr/bin HOME=/root TERM=dumb
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mkdir -p /dev/shm /dev/pts; mount -t tmpfs shm /dev/shm; mount -t tmpfs tmp /tmp; mount -t tmpfs run /run; mount -t devpts pts /dev/pts
CTL=/dev/ttyS1; stty -F $CTL raw -echo 2>/dev/null
echo init > $CTL
IP=/usr/bin/ip      # a bare "ip" would be busybox's applet
for m in $(cat /modules/order); do insmod /modules/$m.ko || echo "guest: insmod $m failed" > /dev/console; done
echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad; echo 0 > /proc/sys/net/ipv6/conf/all/accept_dad
$IP link set lo up; $IP link del dummy0 2>/dev/null      # the module makes one
addrxe(){ rdma link add $1 type rxe netdev $2 || echo "guest: rdma link add $1 failed" > /dev/console; }
gidwait(){ local i=0; while [ $i -lt 100 ]; do case $(cat /sys/class/infiniband/$1/ports/1/gids/$2 2>/dev/null) in ''|0000:0000:0000:0000:0000:0000:0000:0000) usleep 20000; i=$((i+1));; *) return;; esac; done; echo "guest: no GID $2 on $1" > /dev/console; }
$IP link add name dummy0 mtu 4500 type dummy; $IP addr add 10.0.0.1/24 dev dummy0; $IP link set dummy0 up
addrxe rxe0 dummy0
. /job/.rxe/conf
if [ "$RXE_PAIR" = 1 ]; then
  $IP link add name v0 mtu 4500 type veth peer name v1 mtu 4500; $IP link set v0 up; $IP link set v1 up
  addrxe rxp0 v0; addrxe rxp1 v1; gidwait rxp0 0; gidwait rxp1 0
fi
if [ -n "$RXE_NODE" ]; then
  $IP addr add 10.1.0.$RXE_NODE/24 dev eth0; $IP link set eth0 up; addrxe rxe1 eth0; gidwait rxe1 1
fi
gidwait rxe0 1
ulimit -l unlimited; ulimit -n 65536; ulimit -c 0
[ "$RXE_OUT" = 1 ] && mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=none out /out
export OUT=/out RDMA_DEV=rxe0 RDMA_GID_INDEX=1 RXE_GUEST=1
cd /job
echo "ready $(cut -d' ' -f1 /proc/uptime)" > $CTL
stty -F /dev/hvc0 raw -echo 2>/dev/null
( /usr/bin/sh /job/.rxe/cmd </dev/null; echo $? > /tmp/.rc ) 2>&1 | cat > /dev/hvc0
sync
echo "status $(cat /tmp/.rc 2>/dev/null) $(cut -d' ' -f1 /proc/uptime)" > $CTL
poweroff -f
INIT
  chmod 755 "$w/init"
  (cd "$w"; find . | LC_ALL=C sort | "$C/user/usr/bin/busybox" cpio -o -H newc -R 0:0 2>/dev/null) > "$C/base-$KERNEL.tmp"
  mv "$C/base-$KERNEL.tmp" "$C/base-$KERNEL.cpio"; (cd "$w/$l"; ls) > "$C/base-$KERNEL.libs"
  rm -rf "$k" "$w"; echo "$kv" > "$C/base-$KERNEL.ok"; }

# headers of libibverbs, for programs that are built with the tag ibverbs
build_headers(){ [ -e "$C/dev.ok" ] && return; rm -rf "$C/dev" "$C/dev.d"; mkdir -p "$C/dev.d"
  (cd "$C/dev.d" && apt_in trixie apt-get -qq download libibverbs-dev); unpack "$C/dev" "$C/dev.d"/*.deb; rm -rf "$C/dev.d"; touch "$C/dev.ok"; }

for t in apt-get dpkg-deb xz; do command -v $t >/dev/null || RC=77 die "this machine has no $t"; done
[ -e "$KEYRING" ] || RC=77 die "this machine has no $KEYRING: install debian-archive-keyring"
mkdir -p "$C"
exec 9> "$C/lock"; flock 9
trap '[ $? = 0 ] || { echo "guest: packages cannot be downloaded: is there a network?" >&2; exit 77; }' EXIT
if [ -n "${RXE_QEMU:-}" ]; then QEMU=($RXE_QEMU)
else build_qemu; q=$C/qemu/usr
  QEMU=("$q/lib64/ld-linux-x86-64.so.2" --library-path "$q/lib/x86_64-linux-gnu" "$q/bin/qemu-system-x86_64" -L "$q/share/qemu" -L "$q/share/seabios")
  export QEMU_MODULE_DIR=$q/lib/x86_64-linux-gnu/qemu; fi
build_base; build_headers
trap - EXIT; flock -u 9; exec 9>&-
[ $BUILDONLY = 0 ] || { echo "guest: $C ready: kernel $(cat "$C/base-$KERNEL.ok")"; exit 0; }

# ---------------------------------------------------------------- one run
T=$(mktemp -d "${TMPDIR:-/tmp}/txnode-guest.XXXXXX"); trap 'rm -rf "$T"' EXIT
BIN=$1; shift; [ -f "$BIN" ] || { n=$BIN; BIN=$(command -v -- "$n") || die "no such program: $n"; }
mkdir -p "$T/j/job/.rxe/lib"; J=$T/j/job
cp -L -- "$BIN" "$J/.rxe/prog"; chmod 755 "$J/.rxe/prog"; NAME=${BIN##*/}
[ -e "$J/$NAME" ] || ln -s .rxe/prog "$J/$NAME"
[ -d testdata ] && FILES+=(testdata)
for f in ${FILES[@]+"${FILES[@]}"}; do cp -aL -- "$f" "$J/"; done
# shared libraries the guest lacks
for f in "$J/.rxe/prog" ${FILES[@]+"${FILES[@]}"}; do [ -f "$f" ] || continue
  { ldd "$f" 2>/dev/null || true; } | while read -r so arrow p _; do
    if [ "$arrow" = '=>' ] && [ -e "$p" ] && ! grep -qxF -- "$so" "$C/base-$KERNEL.libs"; then cp -L "$p" "$J/.rxe/lib/$so"; fi; done; done
{ echo "RXE_PAIR=$PAIR RXE_NODE=${RXE_NET:+${RXE_NODE:-1}}"; [ -z "$OUT" ] || echo RXE_OUT=1; } > "$J/.rxe/conf"
{ for e in ${ENVS[@]+"${ENVS[@]}"}; do printf 'export %q\n' "$e"; done
  [ -z "$(ls "$J/.rxe/lib")" ] || echo 'export LD_LIBRARY_PATH=/job/.rxe/lib'
  printf 'exec ./%s' "$(printf %q "$NAME")"; for a in "$@"; do printf ' %q' "$a"; done; echo; } > "$J/.rxe/cmd"
{ cat "$C/base-$KERNEL.cpio"; (cd "$T/j"; find . | "$C/user/usr/bin/busybox" cpio -o -H newc -R 0:0 2>/dev/null); } > "$T/initrd"
# KVM only where the silicon's own module is there (a PVM or other software KVM cannot run a stock kernel)
if [ -z "${RXE_ACCEL:-}" ]; then RXE_ACCEL=tcg
  if [ -r /dev/kvm ] && [ -w /dev/kvm ] && { [ -d /sys/module/kvm_intel ] || [ -d /sys/module/kvm_amd ]; }; then RXE_ACCEL=kvm; fi; fi
case $RXE_ACCEL in kvm) ACC=(-accel kvm -cpu host);; *) ACC=(-accel tcg,thread=multi -cpu ${RXE_CPU:-max});; esac
EXTRA=(); [ -z "$PIDFILE" ] || EXTRA+=(-pidfile "$PIDFILE"); [ -z "$OUT" ] || { mkdir -p "$OUT"; EXTRA+=(-virtfs "local,path=$OUT,mount_tag=out,security_model=none"); }
APPEND="console=ttyS0 quiet panic=-1 oops=panic nokaslr mitigations=off random.trust_cpu=on audit=0 apparmor=0 cryptomgr.notests 8250.nr_uarts=2 ${RXE_APPEND:-}"
for try in 1 2 3; do
  : > "$T/ctl"; : > "$T/console"; rc=0
  { timeout -k 5 "$LIMIT" "${QEMU[@]}" "${ACC[@]}" -M q35 -m "$MEM" -smp "$CPUS" -nodefaults -no-user-config -display none -no-reboot \
      -kernel "$C/vmlinuz-$KERNEL" -initrd "$T/initrd" -append "$APPEND" \
      -chardev "file,id=con,path=$T/console" -serial chardev:con -chardev "file,id=ctl,path=$T/ctl" -serial chardev:ctl \
      -chardev stdio,id=out,signal=off -device virtio-serial-pci -device virtconsole,chardev=out ${RXE_NET:+-netdev} ${RXE_NET:+"$RXE_NET,id=n0"} ${RXE_NET:+-device} ${RXE_NET:+"virtio-net-pci,netdev=n0,romfile=,mac=52:54:00:00:00:0${RXE_NODE:-1}"} ${EXTRA[@]+"${EXTRA[@]}"} </dev/null 2>"$T/qemu.err" || rc=$?; echo $rc > "$T/rc"; } | cat
  rc=$(cat "$T/rc")
  grep -q '^ready' "$T/ctl" && break
  [ "$rc" != 124 ] && [ "$rc" != 137 ] || break
  echo "guest: guest did not start (attempt $try, qemu rc=$rc)" >&2; tail -n 5 "$T/console" "$T/qemu.err" >&2
done
[ $VERBOSE = 0 ] || sed 's/^/[guest] /' "$T/console" "$T/ctl" >&2
read -r _ status _ < <(tr -d '\r' < "$T/ctl" | grep '^status' || echo 'x') || true
bad=$(grep -m1 -aE 'Oops|BUG:|WARNING:|Kernel panic|soft lockup|rcu.*stall' "$T/console" || true)
[ -z "$bad" ] || echo "guest: guest kernel: $bad" >&2
if [ -n "${status:-}" ]; then [ -z "$bad" ] || [ $STRICT = 0 ] || exit 126; exit "$status"; fi
[ -z "$PIDFILE" ] || [ "$rc" != 137 ] || die "the guest has lost power"
[ "$rc" != 124 ] && [ "$rc" != 137 ] || RC=124 die "timeout after ${LIMIT}s"
tail -n 30 "$T/console" >&2; cat "$T/qemu.err" >&2; die "the guest died (qemu rc=$rc)"
