#!/bin/sh
# Makes media.ts and media.mp4: 8 s of H.264 at 8 Mbit/s, 50 frames a second, the same bytes each time.
set -eu
ffmpeg -nostdin -v error -y -f lavfi -i testsrc2=size=1280x720:rate=50 -t 8 -pix_fmt yuv420p -c:v libx264 -threads 1 \
	-preset veryfast -tune zerolatency -b:v 8M -minrate 8M -maxrate 8M -bufsize 1M -g 50 -flags +bitexact \
	-x264-params nal-hrd=cbr:force-cfr=1 -f mpegts media.ts
ffmpeg -nostdin -v error -y -i media.ts -c copy -flags +bitexact -fflags +bitexact media.mp4
