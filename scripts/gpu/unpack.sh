#!/bin/sh
# Unpack parts that `pack.sh` made, side by side: sh scripts/gpu/unpack.sh PART...
site=${SITE:-/tmp/rlinsight/site}
mkdir -p "$site"
for part in "$@"; do
  python3 -c '
import sys, tarfile
tarfile.open(sys.argv[1]).extractall(sys.argv[2], filter="fully_trusted")' "$part" "$site" &
done
wait
# Ray wants to find the machine by its name.
grep -q "$(hostname)" /etc/hosts || echo "127.0.0.1 $(hostname)" >> /etc/hosts
