# Runs under systemd; prints one line for each fact. A bucket is mounted as a service, and by a line of fstab.

unit=mnt-logs.mount
mounted() { findmnt --noheadings --output SOURCE,FSTYPE /mnt/logs || echo nothing; }
# Another user than the one that mounts.
another() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }

rm -f /etc/systemd/system/$unit
cp /shared/archive.toml /etc/logfs/archive.toml
install --mode=600 /shared/store.env /etc/logfs/store.env
systemctl daemon-reload
systemctl start logfs@archive 2>/dev/null
echo "a service without credentials: $?, $(mounted)"
systemctl stop logfs@archive
mkdir -p /etc/systemd/system/logfs@archive.service.d /etc/systemd/system/$unit.d
printf '[Service]\nEnvironmentFile=/etc/logfs/store.env\n' >/etc/systemd/system/logfs@archive.service.d/store.conf
systemctl daemon-reload
systemctl start logfs@archive
echo "a service: $?, $(mounted), $(another cat /mnt/logs/orders/0 | wc -l) lines"
systemctl reload logfs@archive
echo "reloaded: $?, $(another cat /mnt/logs/orders/0 | wc -l) lines"
systemctl stop logfs@archive
echo "stopped: $(mounted)"

cp /shared/fstab /etc/fstab
systemctl daemon-reload
systemctl start $unit 2>/dev/null
echo "fstab without credentials: $?, $(mounted)"
printf '[Mount]\nEnvironmentFile=/etc/logfs/store.env\n' >/etc/systemd/system/$unit.d/store.conf
systemctl daemon-reload
systemctl reset-failed $unit
systemctl start $unit
echo "fstab: $?, $(mounted), $(another cat /mnt/logs/orders/0 | wc -l) lines"
systemctl stop $unit
echo "stopped: $(mounted)"
echo "done"
