# Runs the image in its own mount namespace: DIRECTORY has data, mnt. What containers print is
# in DIRECTORY/log. crun 1.8 refuses a machine with both hierarchies of control groups, so only the
# first stays here.
cd "$1" || exit 1
image=$2
umount /sys/fs/cgroup/unified 2>/dev/null
mount --bind mnt mnt && mount --make-shared mnt
run() { podman run --rm --network none --ulimit nofile=1024:1024 --ulimit nproc=1000:1000 "$@"; }
shared="$PWD/mnt:/mnt/logs:rshared"

echo "version: $(run "$image" --version)"
run --detach --cidfile id --device /dev/fuse --cap-add SYS_ADMIN -v "$PWD/data:/data" -v "$shared" \
    "$image" >log || exit 1
until grep -q " $PWD/mnt fuse.logfs " /proc/mounts; do
    podman container exists "$(cat id)" || exit 1
    sleep 0.1
done
mkdir mnt/orders
echo first >>mnt/orders/0
run -v "$shared" --entrypoint sh "$image" -c 'echo second >> /mnt/logs/orders/0'
echo "read: $(tr '\n' ' ' <mnt/orders@earliest)"
podman stop --time 20 "$(cat id)" >>log
echo "mounted: $(ls mnt)"
echo "without a mount: $(run -v "$PWD/data:/data" "$image" cat /data/orders/0 | tr '\n' ' ')"
run --device /dev/fuse -v "$PWD/data:/data" "$image" 2>refused >>log
echo "without SYS_ADMIN: $?, $(grep -c 'mount failed: Operation not permitted' refused)"
