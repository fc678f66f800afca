# Runs under systemd; prints one line for each fact.

service=logfs@web
pid() { systemctl show --property=MainPID --value $service; }
restarts() { systemctl show --property=NRestarts --value $service; }
# until COMMAND…: wait until it succeeds, a quarter of a minute at most.
until_() { for _ in $(seq 150); do "$@" >/dev/null 2>&1 && return; sleep 0.1; done; echo "in vain: $*"; }
served() { [ "$(restarts)" = "$1" ] && [ "$(systemctl is-active $service)" = active ]; }
mounted() { findmnt --noheadings --output SOURCE,FSTYPE /mnt/logs || echo nothing; }

cp /shared/web.toml /etc/logfs/web.toml
cat >/etc/systemd/system/logfs@.service.d/watchdog.conf <<END
[Service]
WatchdogSec=2
RestartSec=100ms
END

echo "process 1: $(cat /proc/1/comm)"
systemctl start $service
echo "started: $? $(systemctl is-active $service)"
echo "status: $(systemctl show --property=StatusText --value $service)"
echo "mounted: $(mounted)"
mkdir /mnt/logs/orders
echo first >>/mnt/logs/orders/0
echo "partitions: $(ls /mnt/logs/orders | tr '\n' ' ')"

# A program that opens its file once, and would end at the first error.
(
    n=0
    exec 3>>/mnt/logs/orders/1
    while [ ! -e /run/stop ]; do
        n=$((n + 1))
        echo $n >&3 || exit
        sleep 0.02
    done
    echo $n >/run/count
) &
writer=$!

kill -9 "$(pid)"
until_ served 1
echo second >>/mnt/logs/orders/0
echo "after a kill: $(tr '\n' ' ' </mnt/logs/orders/0)"

kill -STOP "$(pid)"
until_ served 2
echo "after a hang: $(tr '\n' ' ' </mnt/logs/orders/0)"

systemctl restart $service
echo "restarted: $? $(mounted)"
systemctl daemon-reexec
before=$(pid)
systemctl reload $service
echo "reloaded: $? $(systemctl is-active $service) $(mounted)"
[ "$(pid)" != "$before" ] && served 0 && echo "another main process, no restart"
kill -9 "$(pid)"
until_ served 1
touch /run/stop
wait $writer
[ "$(cat /mnt/logs/orders/1)" = "$(seq "$(cat /run/count)")" ] && echo "an open file: no error, every line once"

systemctl start logfs-verify@web
echo "verified: $?"

# A daemon that does not end is killed; its dead mount goes too, by a command that has as much time.
mkdir -p /run/systemd/system/logfs@.service.d
printf '[Service]\nTimeoutStopSec=5\nWatchdogSec=0\n' >/run/systemd/system/logfs@.service.d/z.conf
systemctl daemon-reload
# systemd sends SIGCONT after SIGTERM, and a process that SIGSTOP has stopped would continue and end. A tracer
# stops its main thread, which handles signals, until SIGKILL.
hold() {
    "/proc/$1/exe" - "$1" <<'END'
import ctypes, os, sys
pid, libc = int(sys.argv[1]), ctypes.CDLL(None, use_errno=True)
SEIZE, INTERRUPT, WAIT_ALL = 0x4206, 0x4207, 0x40000000
for request in (SEIZE, INTERRUPT):
    if libc.ptrace(request, pid, None, None):
        sys.exit(os.strerror(ctypes.get_errno()))
while os.WIFSTOPPED(os.waitpid(pid, WAIT_ALL)[1]):
    open("/run/held", "w").close()
END
}
hold "$(pid)" &
until_ test -e /run/held
systemctl stop $service
echo "stopped by force: $(systemctl show --property=Result --value $service), $(mounted)"
wait

rm /run/systemd/system/logfs@.service.d/z.conf
systemctl daemon-reload
systemctl reset-failed $service
systemctl start $service
systemctl stop $service
echo "stopped: $(systemctl show --property=Result --value $service), $(mounted)"
systemctl start $service
systemctl reload $service
systemctl stop $service
echo "stopped after a reload: $(systemctl show --property=Result --value $service), $(mounted)"
echo "clean: $(ls /var/lib/logfs/.kafka_cleanshutdown)"

systemctl start mnt-logs.mount
echo "as a mount unit: $(mounted), $(cat /mnt/logs/orders/0 | wc -l) lines"
systemctl stop mnt-logs.mount
echo "stopped: $(systemctl show --property=Result --value mnt-logs.mount), $(mounted)"
echo "done"
