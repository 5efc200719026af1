"""The meaning of every column of a dataset. docs/data.md has the same tables (scripts/write_field_docs.py)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, TypeAlias

from brobust.dataset.raw import Raw
from brobust.errors import BadInput
from brobust.lazily import pl
from brobust.scenario.fields import ROWS


@dataclass(frozen=True)
class Column:
    """A column's type, and its meaning with the unit. Without a meaning it has no row of its own in docs/data.md: it is
    the run or the flow, or says what a field of the scenario was."""

    type: str
    meaning: str

    @property
    def dtype(self) -> Any:
        types = {"text": pl.String, "integer": pl.Int64, "number": pl.Float64, "boolean": pl.Boolean}
        return pl.Datetime("us", "UTC") if self.type == "time" else types[self.type]


def _columns(described: str) -> dict[str, Column]:
    """Return columns from lines with their names, their type, and what one sentence says of all of them: one row of
    docs/data.md. A line that is indented further goes on with the sentence before."""
    columns: dict[str, Column] = {}
    for line in re.sub(r"\n {6}", " ", described).strip().splitlines():
        found = re.fullmatch(r" *([\w, ]+) \((\w+)\)(?:: (.+))?", line)
        assert found is not None, line
        columns |= dict.fromkeys(found[1].split(", "), Column(found[2], found[3] or ""))
    return columns


# One row per run and flow: what names the run, its fields, and what was measured.
RUNS = (
    _columns("""
    run (text)
    scenario (text): hash of every scenario field
    repeat (integer): number of the repeat, from 0
    flow (integer)
    """)
    | {row.column.name: Column(row.column.type, row.column.meaning) for row in ROWS if row.column}
    | _columns("""
    kernel_release, kernel_hash (text): uname -r of the sender, and SHA-256 of its kernel image; the latter is null on
      vm
    bbr_version (integer): version of BBR of the flow's control if it is the kernel's own; null for others, and on vm
    hz (integer): tick rate of the sender's kernel, Hz; null on vm
    path_kernel_release (text): uname -r of the guest with bottleneck and receiver, on lab of the host with the
      bottleneck; null on virtual
    throughput_mbps (number): payload received from start_s to stop_s, Mbit/s, counted at the receiver (what arrives
      after stop_s does not count); of programs: payload of TCP and UDP that reached it, counted at the link, where what
      is sent again counts again
    completion_ms (number): time from the flow's start, with the set-up of its connection, until the receiver had all of
      flow_bytes, ms; null: it had not, or the flow has no end
    retransmits (integer): segments retransmitted by the sender; null where none of its flow is TCP
    rtt_mean_ms, rtt_p99_ms (number): mean and 99th percentile of the sender's smoothed RTT, ms; on vm it was read every
      100 ms
    drops, nic_drops (integer): packets of this flow dropped at the bottleneck, and of the run by full rings of NICs
      (nic.rx_ring) at either end; null on vm
    queue_mean_ms (number): mean queueing delay of this flow's packets at the bottleneck, ms; null on vm
    skb_mean_bytes (number): mean payload of a TSO packet, bytes; null on vm
    pacing_idle_ms (number): mean time that pacing waited after a TSO packet, ms; null on vm, and where nothing was
      paced
    cpu_busy_share (number): CPU time of the sender's work as a share of the run; null without a modelled CPU and
      programs.*_byte_ns or accept_time
    cross_transfers, cross_ended (integer): flows of the cross traffic that began, and that were through by the end of
      the run; null without it, as below
    cross_median_ms, cross_p99_ms (number): median and 99th percentile of the completion times of those that were
      through, ms
    cross_slowdown, cross_slowdown_p99 (number): the same over the shortest possible: one and a half round trips, and
      their frames at the lowest bandwidth on their way
    requests, requests_answered (integer): requests that were due, and that had a whole answer with a status of 200 to
      299; null where no program told of any, as below
    requests_per_s (number): the same over the time from the first flow's start to the run's end
    request_median_ms, request_p99_ms, request_p999_ms (number): median, 99th and 99.9th percentile of the times from
      when a request was due until all of its answer was there, ms; one without an answer took longer than all others,
      and is null here as below; of fewer than 100 (1000) requests the 99th (99.9th) is the longest
    first_byte_median_ms, first_byte_p99_ms, first_byte_p999_ms (number): the same until the first byte of the answer
      was there, ms
    packet_hash (text): XXH3 of all frames and their times (128 bits): equal for equal scenario, repeat and kernel; null
      on vm
    effective_share (number): share of the run in which the sender could run, fraction
    effective_timeslice_ms, effective_offtime_ms (number): timeslice and off-time that the sender got, ms; null without
      contention
    steal_share (number): largest part of a CPU's time that the hypervisor under the sender's host (on vm the machine
      under the guests) gave to others, as /proc/stat there counts it; null on virtual
    late_share (number): part of the wake-ups of a thread with priority on the sender, one every 20 ms, that came more
      than 2 ms late: it, or what it runs on, was busy; null except on lab
    asleep_share (number): share of the run in which the sender slept because it had nothing to do
    vcpu_shares (text): effective share of each vCPU, by number, fractions with spaces between them; the other columns
      of what the sender got are means over its vCPUs, and timeslices is their sum; null on virtual
    sender_cpus (integer): CPUs of the host that the sender's vCPUs had; if less than vcpus, some took turns; null on
      virtual
    path_waiting_share (number): share of the run in which the path guest wanted a CPU and had none; on lab late_share
      of the path host or of the receiver, whichever is larger
    timeslices (integer): number of timeslices that were recorded
    guest_restarts (integer): how often the run was measured again in new guests, since one died or was never ready;
      null on virtual
    lost_events (integer): scheduler events that the recorder lost; if not 0, the effective figures are estimates
    outcome (text): ok; unfaithful: share or timeslice off by more than 10 %, or nothing was delivered; failed
    reason (text): why the run is unfaithful or failed
    started_at (time): when the run began
    wall_s (number): wall-clock time of the whole run, s
    brobust, qemu, iperf3 (text): versions of these programs; null where they were not used
    """)
)

THROUGHPUT = _columns("""
    run (text)
    flow (integer)
    time_s (number): end of the interval, seconds after the flow's start
    throughput_mbps (number): payload received in the interval, Mbit/s; where a lost packet comes at last, what waited
      behind it is received with it, so an interval may have over twice the path's rate; for the rate on the wire use
      arrived_s of packets
""")

SAMPLES = _columns("""
    run (text)
    flow (integer)
    connection (integer): the program's connection; null without programs
    time_s (number): seconds after the run's start; on vm after the run's first sample
    cc (text): congestion control as the socket names it
    cwnd_packets, ssthresh_packets (integer): congestion window, and slow start threshold, packets; the latter is null
      where there is none yet
    pacing_rate_mbps, delivery_rate_mbps (number): sk_pacing_rate, and the latest delivery rate sample, Mbit/s
    bandwidth_estimate_mbps (number): BBR's bandwidth estimate, Mbit/s; null where the control shows none
    min_rtt_ms (number): BBR's min RTT, ms; the stack's where the control has none
    srtt_ms, rtt_ms (number): smoothed RTT, and the latest RTT sample, ms; the latter is null on vm
    inflight_packets (integer): packets in flight (unacked - sacked - lost + retransmitted)
    inflight_bdp (number): in flight / (BBR's bandwidth estimate x min RTT); null without estimate
    delivered_packets, lost_packets (integer): packets delivered, and marked lost, so far; the latter is null on vm
    queue_bytes (integer): this flow's bytes in the bottleneck's queue; null on vm
    pacing_gain, cwnd_gain (number): BBR's gains; null where the control shows none
    app_limited (boolean): whether the latest delivery rate sample was application-limited
    retransmits (integer): segments retransmitted so far
    deficit_acks (integer): ACKs so far at which a repair acted (steady controls: stalls so far); null where the control
      reports none
    mode (text): phase of the control: startup, drain, probe_bw, ... (cc/cc.h); null where it does not report it
    state (text): loss recovery state of the stack: open, disorder, cwr, recovery, loss
""")

OFFTIMES = _columns("""
    run (text)
    sender (integer): the sender, from 1
    vcpu (integer): its vCPU, from 0; null on virtual, where the rows say when any of the vCPUs could run
    kind (text): timeslice: the sender could run; off: it could not (on vm: although it wanted to)
    start_s (number): when it began, seconds after the run's start; null where unknown
    duration_ms (number): its length, ms
""")

PACKETS = _columns("""
    run (text)
    time_s (number): when the frame reached the link, seconds after the run's start
    left_s (number): when it left the bottleneck; null if it was dropped, and for ACKs, which do not pass the bottleneck
    arrived_s (number): when it reached the other end; null if it was dropped
    flow (integer)
    connection (integer): the program's connection; null without programs
    direction (text): data: to the receiver; ack: to the sender
    seq, ack (integer): first byte of its payload, and next byte that its sender expects, counted from each direction's
      SYN (the first byte of a flow is 1); 0 if it is not TCP
    payload_bytes, frame_bytes (integer): payload of TCP or UDP, and the whole Ethernet frame, bytes
    dropped (boolean): whether it was lost, or dropped at the bottleneck
    queue_bytes (integer): bytes that were in the bottleneck's queue when it arrived; null for ACKs
""")

TRANSFERS = _columns("""
    run (text)
    start_s (number): when it began, seconds after the run's start
    bytes (integer): its size, bytes of payload
    completion_ms (number): time from there until the receiver had all of it, ms; null: it had not by the end of the run
    slowdown (number): completion_ms over the shortest possible, as in cross_slowdown of the table runs
""")

REQUESTS = _columns("""
    run (text)
    flow (integer): the flow whose program asked
    due_s (number): when it was to be sent, whether it could be or not, seconds after its program began
    first_byte_ms, completion_ms (number): time from there until the first byte and until all of the answer had come,
      ms; null: it did not
    bytes, status (integer): payload of the answer that came, bytes, and HTTP's status; the latter is null if none came
""")

CONNECTIONS = _columns("""
    run (text)
    connection (integer): number of the connection within the run, from 0, in the order of first packets
    flow (integer): the flow that its data counts for; null: none
    protocol (text): tcp, udp, icmp, or IP's number of another
    sender (integer): the sender, from 1
    sender_port, receiver_port (integer): its ports; 0 where there are no ports
    first_s, last_s (number): when its first and its last packet was sent, seconds after the run's start
    packets (integer): packets sent at both ends
    received_bytes, answered_bytes (integer): payload that reached the receiver, and that the receiver sent, bytes
    throughput_mbps (number): received_bytes over the time for which the flow sends, Mbit/s
    drops (integer): packets dropped at the bottleneck or before it
    retransmits (integer): segments retransmitted by the sender; null if it is not TCP
    queue_mean_ms (number): mean queueing delay at the bottleneck, ms
""")

PROGRAMS = _columns("""
    run (text)
    flow (integer)
    end (text): sender or receiver
    command, sha256 (text): the program and its arguments, as it was started, and its SHA-256
    files_sha256 (text): SHA-256 of the names and contents of programs.files; null where there were none
    ended_s (number): when it ended, seconds after the run's start; null: it ran until the end
    exit_status (integer): its exit status; null if it did not exit
    signal (text): the signal that ended it; null if none did
    stdout, stderr (text): what it wrote to its standard output and error
""")

CALLS = _columns("""
    run (text)
    node (text): where the program ran: sender 1, sender 2, ..., or receiver
    process, thread (integer): numbers of process and thread in their kernel; the first thread has its process's
    name (text): name of the thread, up to 15 bytes; at first that of the program
    call (text): the system call
    start_s (number): when it began, seconds after the run's start
    duration_ms (number): time until it returned, ms: what it costs, what the thread waited, and off-times
    result (integer): what it returned; -errno if it failed
""")

# In the order in which the files of a run are written: that in runs/ last.
TABLES: dict[str, dict[str, Column]] = {
    "throughput": THROUGHPUT, "samples": SAMPLES, "offtimes": OFFTIMES, "packets": PACKETS,
    "transfers": TRANSFERS, "requests": REQUESTS, "connections": CONNECTIONS, "programs": PROGRAMS, "calls": CALLS,
    "runs": RUNS,
}  # fmt: skip


def columns_of(table: str) -> dict[str, Column]:
    """Return the columns of the table of this name; refuse a name that no table has."""
    if table not in TABLES:
        raise BadInput(f"table: {table!r} is none of a dataset's; there are {', '.join(sorted(TABLES))}")
    return TABLES[table]


# A backend gives rows, a frame where there are millions of them, or what a frame is made from later.
Rows: TypeAlias = "list[dict[str, Any]] | pl.DataFrame | Raw"


def frame(rows: Rows | None, columns: dict[str, Column]) -> pl.DataFrame:
    """Return rows as a frame of exactly these columns: a missing value is null, an unknown column an error."""
    schema = {name: column.dtype for name, column in columns.items()}
    if isinstance(rows, Raw):
        rows = rows.together([rows])
    given = rows.columns if isinstance(rows, pl.DataFrame) else {key for row in rows or [] for key in row}
    unknown = set(given) - set(columns)
    assert not unknown, f"not columns of this table: {sorted(unknown)}"
    if not isinstance(rows, pl.DataFrame):
        return pl.DataFrame(rows or [], schema=schema, orient="row")
    present = [pl.col(name) if name in given else pl.lit(None).alias(name) for name in schema]
    return rows.select(present).cast(schema)  # type: ignore[arg-type]
