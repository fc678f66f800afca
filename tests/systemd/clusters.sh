# Runs under systemd beside a broker of the host; prints one line for each fact.

pid() { systemctl show --property=MainPID --value "$1"; }
# until COMMAND…: wait until it succeeds, a minute at most.
until_() { for _ in $(seq 600); do "$@" >/dev/null 2>&1 && return; sleep 0.1; done; echo "in vain: $*"; }
served() { [ "$(systemctl show --property=NRestarts --value "$1")" = "$2" ] && [ "$(systemctl is-active "$1")" = active ]; }
has_lines() { [ "$(wc -l <"/mnt/logs/$1/0")" = "$2" ]; }
is_sent() { grep -q "\"held_offset\": $1\b" /mnt/logs/web/0.meta; }

cp /shared/web.toml /etc/logfs/web.toml
for unit in logfs-mirror@ logfs-forward@; do
    mkdir -p "/etc/systemd/system/$unit.service.d"
    # This tree may lie in /tmp.
    printf '[Service]\nRestartSec=100ms\nPrivateTmp=no\n' >"/etc/systemd/system/$unit.service.d/quick.conf"
done
systemctl daemon-reload

systemctl start logfs@web logfs-mirror@web
echo "mirror: $? $(systemctl is-active logfs-mirror@web)"
until_ has_lines orders 50
echo "mirrored: $(wc -l </mnt/logs/orders/0) lines"
echo x 2>/dev/null >>/mnt/logs/orders/0 || echo "it takes no appends"
kill -9 "$(pid logfs-mirror@web)"
touch /shared/killed
until_ served logfs-mirror@web 1
until_ has_lines orders 80
echo "after a kill: $(wc -l </mnt/logs/orders/0) lines"

mkdir /mnt/logs/web
echo one >>/mnt/logs/web/0
systemctl start logfs-forward@web
echo "forward: $? $(systemctl is-active logfs-forward@web)"
until_ is_sent 1
kill -9 "$(pid logfs-forward@web)"
echo two >>/mnt/logs/web/0
until_ served logfs-forward@web 1
until_ is_sent 2
systemctl restart logfs@web
echo three >>/mnt/logs/web/0
until_ is_sent 3
echo "sent: $(grep -o '"held_offset": [0-9]*' /mnt/logs/web/0.meta)"
systemctl is-active logfs-mirror@web logfs-forward@web | sort -u
systemctl stop logfs-forward@web logfs-mirror@web
for unit in logfs-forward@web logfs-mirror@web; do
    echo "stopped: $(systemctl show --property=Result --value $unit)"
done
systemctl stop logfs@web
echo "done"
