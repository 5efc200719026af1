"""The description of every field of a scenario: a row here, a line in tables.py or model.py, and the place where
the field acts are all that a new field needs.

From these rows come the options of `brobust run` and their help, the bounds and defaults of the model, the refusals
of what only another backend has, the columns of the dataset, the axes of tables and figures, and the tables of
docs/scenario.md and docs/data.md (scripts/write_field_docs.py).
"""

from collections.abc import Mapping
from typing import Any

from brobust import drivers
from brobust.drivers.modelled import MODELLED
from brobust.scenario.description import (
    COMMAND,
    COUNT,
    CPU,
    CROSS,
    FILE,
    FILES,
    FLOWS,
    FRACTION,
    FREQUENCY,
    NAME,
    NUMBER,
    OUTPUT,
    PATH,
    PROGRAMS,
    RATE,
    RATE_CHANGES,
    RTT_CHANGES,
    RUNS,
    SENDER,
    SIZE,
    SWITCH,
    TIME,
    Axis,
    Field,
    FieldColumn,
)
from brobust.scenario.specs import MAX_RATE, MAX_TIME, MIN_RATE

MAX_RTT = 10_000_000_000  # ns
MAX_CYCLES = 1e12
MAX_BYTE_NS = 100_000  # 80 kbit/s
MAX_FLOW_BYTES = 1_000_000_000_000
MAX_SENDERS = 64
MAX_FLOWS = 4096  # of a group
MAX_REPEATS = 10_000
REAL_TIME = ("vm", "lab")  # backends

# What the sender's kernel spends of its CPU, in cycles: of a phone's small core, fitted to four throughputs of "Are
# Mobiles Ready for BBR?", section 4.1, by benchmarks/phone_cpu.py (docs/virtual-time.md).
TIMER_CYCLES = 117_000.0
RX_PACKET_CYCLES = 7_700.0
TX_SKB_CYCLES = 14_800.0
TX_BYTE_CYCLES = 8.2

_OF_A_PHONE = "The default is that of a phone's small core."


def _cycles(key: str, default: float, help: str) -> Field:
    return Field(
        f"cpu.{key}", NUMBER, f"--{key.replace('_', '-')}", SENDER, f"{help} {_OF_A_PHONE}", default=default, min=0,
        max=MAX_CYCLES, only_on="virtual",
    )  # fmt: skip


def _byte_cost(done: str, do: str, more: str = "") -> Field:
    what = f"CPU time of a sender's programs for each byte that they {do} over TCP or UDP, as for encryption, ns."
    return Field(
        f"programs.{done}_byte_ns", NUMBER, f"--{done}-byte-ns", PROGRAMS, f"{what} {more}".strip(),
        default=0.0, min=0, max=MAX_BYTE_NS, only_on="virtual",
        column=FieldColumn(f"{done}_byte_ns", "number", null_on=REAL_TIME),
        axis=Axis(f"work per byte {done}", f"CPU time of a byte {done} [ns]", "{} ns a byte " + done),
    )  # fmt: skip


# Tables and figures have their axes by panel, and within a panel in this order (analysis/axes.py).
ROWS = (
    # --- path ------------------------------------------------------------------------------------------------
    Field(
        "path.bandwidth", RATE, "--bandwidth", PATH,
        "Rate of the bottleneck (bit, kbit, mbit, gbit; decimal). Ethernet frames count, as in tc-tbf(8).",
        default="20mbit", min=MIN_RATE, max=MAX_RATE,
        column=FieldColumn("bandwidth_mbps", "number", unit="Mbit/s"),
        axis=Axis("bandwidth", "bottleneck bandwidth [Mbit/s]", "{} Mbit/s", logarithmic=True),
    ),
    Field(
        "path.rtt", TIME, "--rtt", PATH,
        "Round-trip time of the path without queueing (ns, us, ms, s). Virtual time needs at least 200us; on vm the "
        "testbed's own latency is added, 1-2 ms under TCG, and on lab that of your network.",
        default="10ms", min=0, max=MAX_RTT,
        column=FieldColumn("rtt_ms", "number", unit="ms"),
        axis=Axis("RTT", "round-trip time [ms]", "{} ms RTT"),
    ),
    Field(
        "path.buffer", SIZE, "--buffer", PATH,
        "Buffer of the bottleneck: 1bdp (of the bandwidth and the RTT at first), 60kB (B, kB, MB, KiB, MiB), 100p "
        "(frames; on vm of 1514 bytes) or 17sp (super-packets, on virtual only).",
        default="1bdp",
        column=FieldColumn("buffer_bytes", "integer", unit="B"),
        axis=Axis("buffer", "bottleneck buffer [bytes]", "{} B buffer", logarithmic=True),
    ),
    Field(
        "path.burst", SIZE, "--burst", PATH,
        "Depth of the bottleneck's token bucket, in the units of the buffer, at least 1514B: so much passes at once "
        "after idle time. With a buffer of 0B the bucket is a policer. 0B: no bucket, the bottleneck is a wire.",
        default="0B", only_on="virtual",
        column=FieldColumn("burst_bytes", "integer", unit="B"),
        axis=Axis("burst", "burst of the token bucket [bytes]", "{} B burst", {0: "no token bucket"}),
    ),
    Field(
        "path.aqm", NAME, "--aqm", PATH,
        "Queue management of the bottleneck: none, red, codel or fq_codel, with options as in 'codel target=5ms ecn'.",
        default="none", only_on="virtual",
        column=FieldColumn(
            "aqm", "text", "queue management at the bottleneck, with the options that are not defaults"
        ),
        axis=Axis("aqm", phrase="aqm {}", phrases={"none": "no aqm"}),
    ),
    Field(
        "path.second_bandwidth", RATE, "--second-bandwidth", PATH,
        "Rate of a second bottleneck, which packets reach as soon as they have left the first.",
        if_absent="there is none", min=MIN_RATE, max=MAX_RATE, only_on="virtual", instead="none",
        column=FieldColumn("second_bandwidth_mbps", "number", unit="Mbit/s"),
        axis=Axis(
            "second bandwidth", "bandwidth of the second bottleneck [Mbit/s]", "{} Mbit/s behind it",
            {None: "one bottleneck"}, logarithmic=True,
        ),
    ),
    Field(
        "path.second_buffer", SIZE, "--second-buffer", PATH,
        "Buffer of the second bottleneck, as that of the first, but not in super-packets.",
        default="1bdp", only_on="virtual",
        column=FieldColumn("second_buffer_bytes", "integer", unit="B"),
        axis=Axis("second buffer", "buffer of the second bottleneck [bytes]", "{} B second buffer", logarithmic=True),
    ),
    Field(
        "path.loss", FRACTION, "--loss", PATH,
        "Random loss before the bottleneck's buffer: 0.001 or 0.1%.",
        default="0", min=0, below=1,
        column=FieldColumn("loss", "number"),
        axis=Axis("loss", "packet loss [%]", "{} loss", percent=True),
    ),
    Field(
        "path.ip_version", COUNT, "--ip-version", PATH,
        "Version of IP that all packets have: 4 or 6. IPv6's header is 20 bytes longer, so a full packet carries "
        "1428 bytes of payload instead of 1448. With 6 there is no IPv4, and programs are given IPv6 addresses.",
        default=4, only_on="virtual",
        column=FieldColumn("ip_version", "integer"),
        axis=Axis("IP version", phrase="IPv{}"),
    ),
    Field(
        "path.bandwidth_changes", RATE_CHANGES, "--bandwidth-changes", PATH,
        "Changes of the bandwidth during the run: 5s:50mbit,10s:20mbit.",
        default=[], if_absent="none", is_axis=False,
    ),
    Field(
        "path.rtt_changes", RTT_CHANGES, "--rtt-changes", PATH,
        "Changes of the round-trip time during the run: 5s:40ms,10s:10ms. They apply to flows that have neither an "
        "RTT nor changes of their own.",
        default=[], if_absent="none", is_axis=False,
    ),
    # --- flows -----------------------------------------------------------------------------------------------
    Field(
        "flows.cc", NAME, "--cc", FLOWS,
        "Congestion control: any that the kernel has or `brobust cc list` shows. Ours may have parameters: "
        "brb_bbq:alpha=5ms.",
        default="cubic",
        column=FieldColumn("cc", "text"),
        axis=Axis("cc"),
    ),
    Field(
        "flows.count", COUNT, "--flows", FLOWS,
        "Number of parallel flows; on vm at most 128.",
        default=1, min=1, max=MAX_FLOWS,
        column=FieldColumn("flows", "integer", "flows in the run"),
        axis=Axis("flows", "parallel flows", "{} flows", {1: "1 flow"}),
    ),
    Field(
        "flows.start", TIME, "--start", FLOWS,
        "Time at which the flows start, counted from the beginning of the run.",
        default="0s", min=0, max=MAX_TIME,
        column=FieldColumn("start_s", "number", "when the flow was started, seconds into the run", "s"),
    ),
    Field(
        "flows.start_spread", TIME, "--start-spread", FLOWS,
        "Each of the flows starts later by a time of its own, drawn from 0 to this. Many flows that all start at once "
        "lose their first packets together, and send them again together.",
        default="0s", min=0, max=MAX_TIME, only_on="virtual", is_axis=False,
    ),
    Field(
        "flows.stop", TIME, "--stop", FLOWS,
        "Time at which the flows stop sending, counted from the beginning of the run.",
        if_absent="at the end of the run", max=MAX_TIME, only_on="virtual", instead="no stop",
        column=FieldColumn(
            "stop_s", "number",
            "when the flow stopped sending, seconds into the run; where all of flow_bytes has arrived, when it had",
            "s",
        ),
    ),
    Field(
        "flows.rtt", TIME, "--flow-rtt", FLOWS,
        "Round-trip time of these flows, where it is not the path's.",
        if_absent="the path's", min=0, max=MAX_RTT,
        column=FieldColumn("flow_rtt_ms", "number", unit="ms"),
        axis=Axis("flow RTT"),
    ),
    Field(
        "flows.rtt_changes", RTT_CHANGES, "--flow-rtt-changes", FLOWS,
        "Changes of these flows' round-trip time during the run, as in --rtt-changes.",
        default=[], if_absent="none", is_axis=False,
    ),
    Field(
        "flows.pattern", NAME, "--pattern", FLOWS,
        "What the application writes: bulk always has data; 'rate 5mbit' writes so much payload, every 10 ms; 'onoff "
        "1s 500ms' is bulk and silent in turn; 'idle 3s 2s' is bulk, but for 2 s after 3 s. On vm only bulk and rate.",
        default="bulk", words_only_on={"onoff": "virtual", "idle": "virtual"}, instead="bulk, or 'rate 5mbit'",
        column=FieldColumn("pattern", "text"),
        axis=Axis("pattern"),
    ),
    Field(
        "flows.bytes", SIZE, "--flow-bytes", FLOWS,
        "How much each of the flows sends (B, kB, MB, GB). Then it ends, and has a completion time. Only with pattern "
        "bulk.",
        if_absent="as much as it can", min=1, max=MAX_FLOW_BYTES, only_on="virtual", instead="no bytes",
        column=FieldColumn(
            "flow_bytes", "integer", "how much the flow was to send, bytes of payload; null: as much as it could", "B"
        ),
        axis=Axis("flow size", "size of a flow [bytes]", "flows of {} B", logarithmic=True),
    ),
    Field(
        "flows.sender", COUNT, "--sender", FLOWS,
        "Number of the sender that runs the flows. Each sender is a kernel with its own CPU, undisturbed unless "
        "[[senders]] in a file says otherwise.",
        default=1, min=1, max=MAX_SENDERS, only_on="virtual",
        column=FieldColumn("sender", "integer"),
    ),
    # --- cross traffic ----------------------------------------------------------------------------------------
    Field(
        "cross_traffic.load", FRACTION, "--cross-load", CROSS,
        "How much traffic short flows add, from a sender of their own whose CPU is always there: their payload as a "
        "part of the bandwidth. They begin at random times, whatever became of those before (open loop, Poisson). "
        "0: none.",
        default="0", min=0, below=1, only_on="virtual",
        column=FieldColumn("cross_load", "number"),
        axis=Axis("cross traffic", "cross traffic [% of the bandwidth]", "{} cross traffic", percent=True),
    ),
    Field(
        "cross_traffic.cc", NAME, "--cross-cc", CROSS,
        "Congestion control of the cross traffic.",
        default="cubic", only_on="virtual",
        column=FieldColumn("cross_cc", "text"),
        axis=Axis("cross cc", phrase="cross traffic of {}"),
    ),
    Field(
        "cross_traffic.size", SIZE, "--cross-size", CROSS,
        "Mean size of the cross traffic's flows (B, kB, MB, GB). Their sizes are drawn from a Pareto distribution with "
        "an upper bound.",
        default="100kB", min=100, max=1_000_000_000, only_on="virtual",
        column=FieldColumn("cross_size_bytes", "integer", unit="B"),
        axis=Axis("cross size", "mean size of the cross traffic's flows [bytes]", logarithmic=True),
    ),
    Field(
        "cross_traffic.shape", NUMBER, "--cross-shape", CROSS,
        "Shape of the distribution of these sizes: the closer to 1, the more of the bytes are in few large flows.",
        default=1.2, above=1, max=10, only_on="virtual",
        column=FieldColumn("cross_shape", "number"),
        axis=Axis("cross shape", "shape of the sizes' distribution"),
    ),
    Field(
        "cross_traffic.max_size", SIZE, "--cross-max-size", CROSS,
        "The upper bound of these sizes: no flow of the cross traffic is larger.",
        default="10MB", min=1000, max=MAX_FLOW_BYTES, only_on="virtual",
        column=FieldColumn("cross_max_bytes", "integer", unit="B"),
        axis=Axis("cross max", "upper bound of the sizes [bytes]", logarithmic=True),
    ),
    Field(
        "cross_traffic.enters", NAME, "--cross-enters", CROSS,
        "The bottleneck at which the cross traffic enters the path, first or second. Its load is a part of that one's "
        "bandwidth.",
        default="first", only_on="virtual",
        column=FieldColumn("cross_enters", "text"),
        axis=Axis("cross enters", phrase="cross traffic at the {} bottleneck"),
    ),
    # --- CPU contention --------------------------------------------------------------------------------------
    Field(
        "contention.share", FRACTION, "--share", CPU,
        "Part of the time in which the sender may run, timeslice / period: 0.25 or 25%. With 1 it is undisturbed.",
        default="1", above=0, max=1,
        column=FieldColumn("share", "number"),
        axis=Axis("CPU share", "CPU share of the sender [%]", "{} CPU", percent=True),
    ),
    Field(
        "contention.driver", NAME, "--driver", CPU,
        "What takes the CPU away: on virtual auto (exactly the timeslices), replay, none, or a host's scheduler "
        f"({', '.join(MODELLED)}, with settings); on vm and lab {', '.join(drivers.BY_NAME)} or none "
        "(docs/scenario.md).",
        default="auto", default_on={"vm": "deadline", "lab": "deadline"},
        column=FieldColumn(
            "driver", "text",
            f"what took the CPU from this flow's sender: virtual (exact timeslices), {', '.join(drivers.BY_NAME)}, "
            "none; on virtual also as its host's settings model it, such as deadline:hz=1000",
        ),
        axis=Axis("driver", phrase="driver {}", phrases={"virtual": "exact timeslices"}, only_contended=True),
    ),
    Field(
        "contention.timeslice", TIME, "--timeslice", CPU,
        "How long the sender may run at a stretch. Driver deadline needs at least 2.5 ticks of the host to be accurate "
        "(10 ms at HZ=250); burner is exact.",
        default="10ms", min=50_000, max=4_000_000_000,
        column=FieldColumn("timeslice_ms", "number", unit="ms", null_without_slices=True),
        axis=Axis(
            "timeslice", "timeslice [ms]", "{} ms slices", {None: "undisturbed"}, only_contended=True, logarithmic=True
        ),
    ),
    Field(
        "contention.phase", TIME, "--phase", CPU,
        "When the first whole period begins: a time after the contention's start, or random for each run and vCPU; "
        "with several vCPUs also in (all at once) or out (in turn). On vm the burner takes a time, burner and deadline "
        "take in and out; on lab the burner takes in and out.",
        default="random", or_word="random|in|out", max=MAX_TIME,
        column=FieldColumn("phase", "text", null_without_slices=True),
        axis=Axis("phase", phrase="phase {}", only_contended=True),
    ),
    Field(
        "contention.vcpus", COUNT, "--vcpus", CPU,
        "Number of the sender's vCPUs, each under the contention. On vm each needs a CPU of this machine, beside one "
        "for the path.",
        default=1, min=1, max=16,
        column=FieldColumn("vcpus", "integer"),
        axis=Axis("vCPUs", "vCPUs of the sender", "{} vCPUs", {1: "1 vCPU"}),
    ),
    Field(
        "contention.interrupts", NAME, "--interrupts", CPU,
        "With several vCPUs: which of them get the NIC's interrupts. spread: one those of packets that arrive, another "
        "those of packets that were sent, as Linux spreads them by itself; together: one gets both.",
        default="spread",
        column=FieldColumn("interrupts", "text"),
        axis=Axis("interrupts", phrase="interrupts {}", phrases={"spread": "interrupts spread over vCPUs"}),
    ),
    Field(
        "contention.when_idle", NAME, "--when-idle", CPU,
        "What the sender's vCPUs do when there is nothing to send: spin (a program of the lowest priority keeps each "
        "busy) or sleep, as in a guest that runs nothing but iperf3. A host's schedulers treat the two differently.",
        default="spin", only_on="vm",
        column=FieldColumn("when_idle", "text", null_on=("virtual",)),
        axis=Axis("when idle", phrase="vCPUs {} when idle"),
    ),
    Field(
        "contention.start_jitter", FRACTION, "--start-jitter", CPU,
        "By how much timeslices may begin late: each begins at a random point in this part of its off-time, from the "
        "off-time's beginning. Periods and lengths stay as requested. On vm only the burner has it, up to 0.5.",
        default=0.25, default_on={"vm": 0.0, "lab": 0.0}, min=0, max=1,
        column=FieldColumn("start_jitter", "number", null_without_slices=True),
        axis=Axis(
            "start jitter", "part of the off-time in which a timeslice begins [%]", "start jitter {}",
            {0.0: "constant starts"}, percent=True, only_contended=True,
        ),
    ),
    Field(
        "contention.length_jitter", FRACTION, "--length-jitter", CPU,
        "By how much lengths may differ from those requested: with 0.1 the length of each timeslice and each off-time "
        "is drawn from 90 to 110 %. On vm only the burner has it, up to 0.5.",
        default=0.0, min=0, below=1,
        column=FieldColumn("length_jitter", "number", null_without_slices=True),
        axis=Axis(
            "length jitter", "timeslices and off-times longer or shorter by up to [%]", "lengths ±{}",
            {0.0: "constant lengths"}, percent=True, only_contended=True,
        ),
    ),
    Field(
        "contention.start", TIME, "--contention-start", CPU,
        "Time at which contention begins, counted from the beginning of the run.",
        default="0s", min=0, max=MAX_TIME, only_on="virtual",
    ),
    Field(
        "contention.stop", TIME, "--contention-stop", CPU,
        "Time at which contention ends, counted from the beginning of the run.",
        if_absent="at the end of the run", max=MAX_TIME, only_on="virtual", instead="no stop",
    ),
    Field(
        "contention.alternate", TIME, "--alternate", CPU,
        "Contention for this time, then none for as long, and so on. At least one period.",
        if_absent="contention all the time", above=0, max=MAX_TIME, only_on="virtual", instead="none",
        column=FieldColumn("alternate_s", "number", unit="s", null_without_slices=True),
        axis=Axis(
            "alternate", "time with and without contention, each [s]", "{} s on and off",
            {None: "contention all the time"}, only_contended=True,
        ),
    ),
    Field(
        "receiver.share", FRACTION, "--receiver-share", CPU,
        "Part of the time in which the receiver may run: 0.25 or 25%. With 1 it is undisturbed.",
        default="1", above=0, max=1, only_on="virtual",
        column=FieldColumn("receiver_share", "number"),
        axis=Axis("receiver's share", "CPU share of the receiver [%]", "{} of the receiver's CPU", percent=True),
    ),
    Field(
        "contention.replay", FILE, "--replay", CPU,
        "Recorded off-times instead of timeslices: DATASET or DATASET#RUN, FILE or FILE#THREAD of `brobust contend "
        "record`, or a .csv or .parquet file of your own. The share is then 1.",
        if_absent="none",
        column=FieldColumn("replay", "text"),
        axis=Axis("replay"),
    ),
    # --- sender ----------------------------------------------------------------------------------------------
    Field(
        "traffic", NAME, "--traffic", SENDER,
        "What sends and receives: brobust (source and sink in the kernel), iperf3, programs (of [programs]), or a QUIC "
        "stack: quic:quinn, 'quic:quinn gso=off'. On vm and lab iperf3, on vm also one flow of QUIC. On virtual all "
        "but brobust need ptrace before 7.2.",
        default="brobust", default_on={"vm": "iperf3", "lab": "iperf3"},
        words_only_on=dict.fromkeys(("brobust", "programs"), "virtual"), instead="iperf3",
        column=FieldColumn("traffic", "text"),
        axis=Axis("traffic", phrases={"brobust": "Linux TCP"}),
    ),
    Field(
        "qdisc", NAME, "--qdisc", SENDER,
        "Queue discipline of the sender: none (TCP paces by itself, over pfifo_fast) or fq.",
        default="none", only_on="virtual",
        column=FieldColumn("qdisc", "text"),
        axis=Axis("qdisc", phrase="qdisc {}", phrases={"none": "no fq"}),
    ),
    Field(
        "tso_sizing", NAME, "--tso-sizing", SENDER,
        "Who sizes TSO packets, which BBR sends and paces at once: kernel (the mainline), rate (the mainline before "
        "Linux 5.18, without its bonus for short RTTs) or control (BBR version 1, as in google's kernels; on virtual "
        "only).",
        default="kernel", words_only_on={"control": "virtual"}, instead="kernel or rate",
        column=FieldColumn("tso_sizing", "text"),
        axis=Axis("TSO sizing", phrase="TSO sizing by {}"),
    ),
    Field(
        "pacing", NAME, "--pacing", SENDER,
        "How TCP paces: kernel (as the sender's does), kept (makes up for absences of the CPU up to 100ms; 'kept "
        "lag=50ms'), linux-4.14 (a timer for each packet) or draft (the IETF's), which give nothing back. On vm "
        "kernel, and kept if the sender's kernel has that series.",
        default="kernel", words_only_on={"linux-4.14": "virtual", "draft": "virtual"}, instead="kernel or kept",
        column=FieldColumn("pacing", "text"),
        axis=Axis(
            "pacing", phrase="pacing of {}", phrases={"kernel": "the kernel's own pacing", "kept": "a kept schedule"}
        ),
    ),
    Field(
        "nic.coalesce", TIME, "--coalesce", SENDER,
        "Longest time for which the NICs at both ends hold received packets back, to deliver several with one "
        "interrupt.",
        default="0s", min=0, max=1_000_000_000, only_on="virtual",
        column=FieldColumn("coalesce_us", "number", unit="us", null_on=REAL_TIME),
        axis=Axis("coalesce", "receive interrupt coalescing [us]"),
    ),
    Field(
        "nic.adaptive_rx", NAME, "--adaptive-rx", SENDER,
        "Whether the kernel chooses how long the NIC holds received packets back, as drivers of 25G NICs do (mlx5 and "
        "ice, by lib/dim): off or on.",
        default="off", only_on="virtual",
        column=FieldColumn("adaptive_rx", "text", null_on=REAL_TIME),
        axis=Axis(
            "adaptive rx", phrase="adaptive rx {}", phrases={"off": "fixed interrupts", "on": "adaptive interrupts"}
        ),
    ),
    Field(
        "nic.gro", NAME, "--gro", SENDER,
        "Whether received packets that wait for the same interrupt are merged (GRO): on or off.",
        default="on", only_on="virtual",
        column=FieldColumn("gro", "text", null_on=REAL_TIME),
        axis=Axis("GRO", phrase="GRO {}"),
    ),
    Field(
        "nic.rx_ring", COUNT, "--rx-ring", SENDER,
        "Packets that can wait in the NIC while the kernel does other things or has no CPU; more are lost. mlx5 has "
        "1024, QEMU's virtio-net 256.",
        if_absent="any number", min=1, max=65536, only_on="virtual", instead="none",
        column=FieldColumn("rx_ring_packets", "integer", null_on=REAL_TIME),
        axis=Axis("rx ring", "receive ring [packets]", "ring of {}"),
    ),
    Field(
        "nic.tx_completion", TIME, "--tx-completion", SENDER,
        "Time from sending a packet until it is freed; TCP small queues wait for it.",
        default="5us", min=0, max=1_000_000_000, only_on="virtual",
        column=FieldColumn("tx_completion_us", "number", unit="us", null_on=REAL_TIME),
        axis=Axis("tx completion", "transmit completion [us]"),
    ),
    Field(
        "nic.tso_max_size", SIZE, "--tso-max-size", SENDER,
        "Largest TSO packet that the NIC takes; a USB adapter takes 16kB, one with BIG TCP up to 524.28kB (Linux 6.3 "
        "and newer; over IPv6 5.19 and newer).",
        default="65.536kB", min=4096, max=524_280, only_on="virtual",
        column=FieldColumn("tso_max_bytes", "integer", unit="B", null_on=REAL_TIME),
        axis=Axis("TSO up to", "largest TSO packet [bytes]"),
    ),
    Field(
        "cpu.frequency", FREQUENCY, "--cpu-frequency", SENDER,
        "Frequency of the sender's modelled CPU (Hz, kHz, MHz, GHz): its kernel's work then takes the cycles below.",
        if_absent="its work takes no time", min=10**6, max=10**11, only_on="virtual", instead="none",
        column=FieldColumn("cpu_mhz", "number", unit="MHz"),
        axis=Axis("CPU", "frequency of the sender's CPU [MHz]"),
    ),
    _cycles("timer_cycles", TIMER_CYCLES, "Cycles per timer that fires."),
    _cycles("rx_packet_cycles", RX_PACKET_CYCLES, "Cycles per packet received."),
    _cycles("tx_skb_cycles", TX_SKB_CYCLES, "Cycles per skb handed to the NIC."),
    _cycles("tx_byte_cycles", TX_BYTE_CYCLES, "Cycles per byte sent."),
    # --- programs ----------------------------------------------------------------------------------------------
    Field(
        "programs.sender", COMMAND, "--sender-program", PROGRAMS,
        "Program that sends, and its arguments: any for Linux on x86-64, one process for each flow. {receiver}, "
        "{sender}, {port}, {sender_port}, {cc}, {seconds} and {flow} stand for the flow's own (docs/programs.md).",
        if_absent="none", only_on="virtual", instead="none",
        column=FieldColumn("sender_program", "text"),
        axis=Axis("sender's program"),
    ),
    Field(
        "programs.receiver", COMMAND, "--receiver-program", PROGRAMS,
        "Program that receives, one process for each flow.",
        if_absent="none", only_on="virtual", instead="none",
        column=FieldColumn("receiver_program", "text"),
        axis=Axis("receiver's program"),
    ),
    Field(
        "programs.waits", NAME, "--waits", PROGRAMS,
        "The end whose programs wait to be asked, sender or receiver: they start first, and when all listen the run "
        "begins, with the programs of the other end.",
        if_absent="the receiver's start a second before the run, whether they listen or not",
        only_on="virtual", instead="none", is_axis=False,
    ),
    Field(
        "programs.files", FILES, "--program-files", PROGRAMS,
        "Files and directories that the programs read, by paths from here: programs start in /, and find them under "
        "the same paths there. Libraries come by themselves, also those of programs among these files.",
        default=[], if_absent="none", only_on="virtual", instead="none", is_axis=False,
    ),
    Field(
        "programs.linger", TIME, "--linger", PROGRAMS,
        "Longest time for which programs may go on after the run's duration, to end by themselves and to print.",
        default="1s", min=0, max=MAX_TIME, only_on="virtual", is_axis=False,
    ),
    Field(
        "programs.call_time", TIME, "--call-time", PROGRAMS,
        "CPU time of each system call of a program.",
        default="1us", min=100, max=1_000_000_000, only_on="virtual",
        column=FieldColumn("call_us", "number", unit="us", null_on=REAL_TIME),
        axis=Axis("call time", "CPU time of a system call [us]"),
    ),
    Field(
        "programs.poll_time", TIME, "--poll-time", PROGRAMS,
        "CPU time of a system call of a program that polls: 32 calls in a row have brought it nothing.",
        default="20us", min=100, max=1_000_000_000, only_on="virtual", is_axis=False,
    ),
    _byte_cost("sent", "send", "They are sent when that is done, 16 KiB at a time."),
    _byte_cost("received", "receive"),
    Field(
        "programs.accept_time", TIME, "--accept-time", PROGRAMS,
        "CPU time of a sender's programs for each connection of TCP that they accept, as for its handshake of TLS.",
        default="0s", min=0, max=1_000_000_000, only_on="virtual",
        column=FieldColumn("accept_us", "number", unit="us", null_on=REAL_TIME),
        axis=Axis("accept time", "CPU time of an accepted connection [us]"),
    ),
    # --- runs ------------------------------------------------------------------------------------------------
    Field(
        "duration", TIME, "--duration", RUNS,
        "Length of each run. Where iperf3 sends, as on vm and lab, it does so for whole seconds.",
        default="10s", min=1_000_000_000, max=MAX_TIME,
        column=FieldColumn("duration_s", "number", unit="s"),
    ),
    Field(
        "repeat", COUNT, "--repeat", RUNS,
        "Runs of each cell. Repeat 0, 1, ... draws its random numbers from seed + repeat.",
        default=1, min=1, max=MAX_REPEATS, is_axis=False,
    ),
    Field(
        "seed", COUNT, "--seed", RUNS,
        "Seed of the random numbers, and of the order in which the cells are measured.",
        default=1, min=0, max=2**32 - 1,
        column=FieldColumn("seed", "integer"),
    ),
    Field(
        "backend", NAME, "--backend", RUNS,
        "What measures: virtual (real Linux kernels in virtual time), vm (real VMs; needs root) or lab (your own "
        "hosts, which --hosts names). A list measures on each, one after the other.",
        default="virtual",
        column=FieldColumn("backend", "text"),
        axis=Axis("backend"),
    ),
    Field(
        "hosts", FILE, "--hosts", RUNS,
        "File that names the hosts to measure on, which are reached by ssh: sender, receiver, path and hypervisor "
        "(docs/lab.md).",
        if_absent="none", only_on="lab", instead="none", is_axis=False,
        column=FieldColumn("hosts", "text"),
    ),
    Field(
        "kernel", NAME, "--kernel", RUNS,
        "Kernel of the sender. On virtual one that `brobust kernel list` shows. On vm debian-6.12, debian-6.1, host, a "
        "release in /boot, or BZIMAGE:MODULE_DIRECTORY; with uml one that ends with -realtime. On lab the sender's.",
        default="virtual-6.12", default_on={"vm": "debian-6.12", "lab": "host"},
        column=FieldColumn("kernel", "text"),
        axis=Axis("kernel"),
    ),
    Field(
        "accelerator", NAME, "--accelerator", RUNS,
        "What runs the guests: kvm, tcg (QEMU's emulation, some 20 Mbit/s under contention), auto (kvm where it works, "
        "else tcg), or uml: kernels as processes in real time, without QEMU and KVM.",
        default="auto", only_on="vm",
        column=FieldColumn("accelerator", "text", null_on=("virtual",), from_backend=True),
        axis=Axis("accelerator"),
    ),
    # --- dataset and output ----------------------------------------------------------------------------------
    Field(
        "samples", TIME, "--samples", OUTPUT,
        "Interval of socket samples (cwnd, rates, RTTs), or ack: one at every ACK, on virtual only. On vm samples "
        "take CPU time from the sender, and at least 1ms must lie between them.",
        if_absent="no samples", or_word="ack", min=100_000, words_only_on={"ack": "virtual"},
        instead="an interval such as 10ms",
        column=FieldColumn(
            "samples_ms", "number", "interval of socket samples, ms; 0: at every ACK; null: none were taken", "ms"
        ),
    ),
    Field(
        "packets", SWITCH, "--packets", OUTPUT,
        "Keep every packet of the link, as a table and as pcap, and every system call of programs.",
        default=False, if_absent="off", only_on="virtual", is_axis=False,
    ),
)  # fmt: skip

FIELDS = {field.name: field for field in ROWS}

# What `brobust run` measures where neither a file nor an option says something else: the question of `brobust demo` in
# its smallest form. Without a kernel: each backend has its own.
DEFAULT_GRID: dict[str, Any] = {
    "path": {key: FIELDS[f"path.{key}"].default for key in ("bandwidth", "rtt", "buffer", "burst", "loss", "aqm")},
    "contention": {"driver": "auto", "timeslice": "10ms", "share": ["1", "0.5", "0.25"], "phase": "random"},
    "flows": [{"cc": ["cubic", "bbr", "bbr_steady"], "count": 1, "start": "0s", "pattern": "bulk"}],
    "duration": FIELDS["duration"].default,
    "repeat": 3,
    **{key: FIELDS[key].default for key in ("seed", "backend", "accelerator", "qdisc", "tso_sizing", "pacing")},
}


def grid_default(field: Field, grid: Mapping[str, Any] = DEFAULT_GRID) -> object:
    """Return what is measured where a field is not named: the value, or list of values, that this grid has, or else
    the field's default."""
    table: Any = grid.get(field.table, {}) if field.table else grid
    if isinstance(table, list):
        (table,) = table
    return table.get(field.key, field.default)
