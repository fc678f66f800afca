# Runs inside the booted root, see ../systemd/boot.sh: installs the first package, mounts, upgrades to
# the second one while a file is open, and removes it.
exec 2>&1
cd /shared
environment() { readlink /opt/logfs/current; }
pid() { systemctl show --property=MainPID --value logfs@web; }

dpkg -i first.deb >dpkg
echo "installed: $? $(logfs --version)"
cp web.toml /etc/logfs/web.toml
logfs topic create /var/lib/logfs/orders
systemctl start logfs@web
echo "started: $(systemctl is-active logfs@web)"
echo "pages: $(man -w logfs logfs-address logfs.toml mount.logfs | wc -l)"
exec 3>>/mnt/logs/orders/0
echo first >&3
before=$(pid) first=$(environment)
dpkg -i second.deb >>dpkg
echo "upgraded: $?"
echo second >&3 && echo "an open file: no error"
[ "$before" != "$(pid)" ] && echo "another main process: $(systemctl is-active logfs@web)"
grep -q "/opt/logfs/$(environment)/" /proc/"$(pid)"/maps && echo "it runs the second environment"
[ -d "/opt/logfs/$first" ] || echo "the first environment is gone"
echo "read: $(tr '\n' ' ' </mnt/logs/orders/0)"
exec 3>&-
dpkg -r logfs >>dpkg
echo "removed: $?, mounted: $(findmnt -n /mnt/logs)"
ls -d /opt/logfs /usr/bin/logfs /usr/share/doc/logfs 2>/dev/null
echo "left: $(ls /var/lib/logfs/orders-0/*.log | wc -l) segment, $(ls /etc/logfs)"
