#!/bin/bash
# The first process of a guest: it makes the kernel usable, then starts the agent, which executes the host's requests.
# The host reads the console, and quotes what is printed here if the guest fails.
export PATH=/bin:/usr/sbin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
ln -s /proc/self/fd /dev/fd
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
mount -t bpf bpf /sys/fs/bpf
mount -t debugfs debug /sys/kernel/debug

for module in virtio_pci virtio_console virtio_net tcp_diag; do
	modprobe -q "$module"
done
ip link set lo up

# Socket buffers must limit no bulk flow (2BRobust, section 4), and no run may influence the next one.
cd /proc/sys/net || exit 1
echo 67108864 >core/rmem_max
echo 67108864 >core/wmem_max
echo "4096 131072 67108864" >ipv4/tcp_rmem
echo "4096 65536 67108864" >ipv4/tcp_wmem
echo 1 >ipv4/tcp_no_metrics_save
cd /

# A virtual kernel in real time names the port on its command line (testbed/uml.py).
[ -z "$port" ] || exec brobust-host lab agent "$port"

# The port appears when virtio_console has probed. There is no udev that could wait for it.
for _ in 1 2 3 4 5 6 7 8 9 10; do
	[ -e /dev/vport0p1 ] || [ -e /dev/vport1p1 ] || [ -e /dev/vport2p1 ] && break
	sleep 0.1
done
for port in /dev/vport*p1; do
	exec brobust-host lab agent "$port"
done
