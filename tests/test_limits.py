"""What a backend cannot do is refused before anything starts, in one line with what is allowed."""

from typing import Any

import pytest

from brobust import backends
from brobust.backends.support import unsupported
from brobust.errors import BadInput
from brobust.scenario.grid import scenario

VM: dict[str, Any] = {"backend": "vm"}


def _burner(**more: Any) -> dict[str, Any]:
    return {**VM, "contention": {"driver": "burner", "share": 0.5, **more}}


def _asked(sender: str, receiver: str) -> dict[str, Any]:
    return {"path": {"ip_version": 6}, "programs": {"sender": sender, "receiver": receiver}}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"contention": {"share": 0.5, "start_jitter": 1, "length_jitter": 0.9, "phase": "5ms"}},
        {"contention": {"driver": "none"}},
        {"contention": {"driver": "quota", "share": 0.5}},  # which has no jitter
        {
            "path": {
                "aqm": "codel ecn",
                "bandwidth_changes": "1s:5mbit",
                "rtt_changes": "2s:40ms",
                "rtt": "200us",
                "buffer": "100p",
            }
        },
        {"path": {"burst": "1514B", "buffer": "0B"}},
        {"path": {"burst": "0.5bdp"}},
        {"flows": [{"stop": "5s", "rtt": "40ms", "pattern": "rate 1mbit"}, {"sender": 2}], "senders": [{"share": 0.5}]},
        {"cpu": {"frequency": "576MHz"}, "nic": {"coalesce": "50us"}, "qdisc": "fq", "samples": "ack", "packets": True},
        {"flows": [{"count": 468}] * 64},
        {"flows": [{"bytes": "1B", "start_spread": "1s"}]},
        _asked("nginx", "curl http://[{sender}]:{port}/"),
        _asked("brobust-quinn-h3x", "brobust-client get http://{sender}:{port}/ --for {seconds}"),
        {"programs": {"sender": "brobust-quinn-h3 serve", "receiver": "curl http://{sender}:{port}/"}},
        VM,
        {**VM, "contention": {"share": 0.5}},
        {**VM, "samples": "1ms", "accelerator": "kvm", "kernel": "host", "path": {"rtt": "0s", "buffer": "100p"}},
        {**VM, "accelerator": "uml", "samples": "1ms", "flows": [{"cc": "bbr_steady"}]},
        {**VM, "duration": "10.5s", "flows": [{"start": "500ms"}]},
        {**VM, "duration": "2.5s", "traffic": "quic:quinn"},
        {
            **VM,
            "accelerator": "uml",
            "kernel": "virtual-6.1-realtime",
            "contention": {"driver": "burner", "share": 0.5},
        },
        _burner(),
        _burner(start_jitter=0.5, length_jitter=0.5, phase="5ms"),
    ],
)
def test_what_a_backend_can_do_is_let_pass(fields: dict[str, Any]) -> None:
    assert unsupported(scenario(fields)) is None


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"kernel": "debian-6.12"}, ["kernel", "'debian-6.12'", "virtual-6.12"]),
        ({"accelerator": "kvm"}, ["accelerator", "'kvm'", "auto"]),
        ({"path": {"rtt": "199us", "buffer": "60kB"}}, ["path.rtt", "at least 200us", "199us"]),
        ({"path": {"rtt_changes": "1s:0s"}}, ["path.rtt_changes", "200us"]),
        ({"flows": [{"rtt": "100us"}]}, ["flows.rtt", "200us"]),
        ({"flows": [{"rtt_changes": "1s:100us"}]}, ["flows.rtt_changes", "200us"]),
        ({"contention": {"driver": "burner", "share": 0.5}}, ["contention.driver", "'burner'", "auto"]),
        ({"contention": {"replay": "nowhere.csv"}}, ["replay", "nowhere.csv", "cannot be read"]),
        ({"traffic": "iperf3", "flows": [{"pattern": "rate 1mbit"}]}, ["flows.pattern", "'rate 1mbit'", "bulk"]),
        ({"traffic": "iperf3", "flows": [{"bytes": "1kB"}]}, ["flows.bytes", "1kB", "no bytes"]),
        ({"traffic": "iperf3", "cross_traffic": {"load": 0.5}}, ["cross_traffic.load: 0.5", "iperf3", "give 0"]),
        ({"traffic": "iperf3", "flows": [{"start_spread": "1s"}]}, ["flows.start_spread", "no spread"]),
        ({"programs": {"waits": "sender"}}, ["programs.waits: 'sender'", "traffic brobust", "--sender-program"]),
        ({"programs": {"files": ["a", "b"]}, "traffic": "iperf3"}, ["programs.files: 'a,b'", "traffic iperf3"]),
        ({"programs": {"linger": "5s"}}, ["programs.linger: '5s'", "leave it out"]),
        ({"programs": {"linger": "5s"}, "traffic": "iperf3"}, ["programs.linger: '5s'", "traffic iperf3"]),
        ({"programs": {"waits": "sender"}, "traffic": "quic:quinn"}, ["programs.waits", "traffic quic:quinn"]),
        ({"programs": {"call_time": "5us"}}, ["programs.call_time: '5us'"]),
        ({"programs": {"poll_time": "5us"}}, ["programs.poll_time: '5us'"]),
        ({**VM, "programs": {"linger": "5s"}}, ["programs.linger: '5s' is possible on backend virtual only"]),
        ({**VM, "path": {"second_bandwidth": "5mbit"}}, ["path.second_bandwidth", "'5mbit'", "virtual only", "none"]),
        ({**VM, "path": {"ip_version": 6}}, ["path.ip_version", "'6'", "virtual only", "give 4"]),
        ({"path": {"ip_version": 6}, "traffic": "quic:quinn"}, ["path.ip_version: 6", "quic:quinn", "give 4"]),
        (
            _asked("brobust-quinn-h3-pacer serve {port} {cc} 20000", "sleep 1"),
            ["path.ip_version: 6, but brobust-quinn-h3-pacer has IPv4 sockets; give 4"],
        ),
        (
            _asked("nginx", "curl http://{sender}:{port}/"),
            ["programs.receiver: with IPv6 a URL has its address in brackets; write [{sender}] for {sender}"],
        ),
        (_asked("sh -c 'srt srt://me@{receiver}:{port}'", "srt"), ["programs.sender: with IPv6", "[{receiver}]"]),
        ({"pacing": "kept", "traffic": "quic:quinn"}, ["pacing: 'kept'", "quic:quinn sends over UDP; give kernel"]),
        ({**VM, "pacing": "kept", "traffic": "quic:quinn"}, ["pacing: 'kept'", "over UDP; give kernel"]),
        ({"tso_sizing": "rate", "traffic": "quic:quinn"}, ["tso_sizing: 'rate'", "quic:quinn", "give kernel"]),
        ({**VM, "cross_traffic": {"load": 0.1}}, ["cross_traffic.load", "'0.1'", "virtual only", "0"]),
        ({**VM, "cross_traffic": {"cc": "bbr"}}, ["cross_traffic.cc", "'bbr'", "cubic"]),
        ({"cross_traffic": {"load": 0.1, "cc": "nosuch"}}, ["cc: 'nosuch' is a congestion control neither of Linux"]),
        ({**VM, "flows": [{"bytes": "1MB"}]}, ["flows.bytes", "'1MB'", "virtual only", "no bytes"]),
        ({**VM, "flows": [{"start_spread": "1s"}]}, ["flows.start_spread", "'1s'", "virtual only", "0s"]),
        ({"traffic": "iperf3", "flows": [{"start": "500ms"}]}, ["traffic", "whole seconds", "9.5s", "duration or st"]),
        ({"traffic": "iperf3", "flows": [{"stop": "9.5s"}]}, ["traffic", "whole seconds", "9.5s", "stop or start"]),
        ({**VM, "duration": "2.5s"}, ["traffic", "whole seconds", "2.5s"]),
        ({**VM, "flows": [{}, {"start": "9.5s"}]}, ["traffic", "whole seconds", "500ms"]),
        ({**VM, "kernel": "virtual-6.12"}, ["kernel", "'virtual-6.12'", "accelerator uml", "debian-6.12"]),
        ({**VM, "kernel": "debian-6.12", "accelerator": "uml"}, ["kernel", "'debian-6.12'", "virtual-6.12-realtime"]),
        ({**VM, "kernel": "virtual-6.12", "accelerator": "uml"}, ["kernel", "'virtual-6.12'", "virtual-6.12-realtime"]),
        ({**VM, "accelerator": "uml", "contention": {"share": 0.5, "vcpus": 2}}, ["contention.vcpus", "2", "give 1"]),
        ({"accelerator": "uml"}, ["accelerator", "'uml'", "vm only"]),
        ({**VM, "accelerator": "uml", "samples": "ack"}, ["samples", "'ack'", "10ms"]),
        ({**VM, "path": {"aqm": "red ecn"}}, ["path.aqm", "'red ecn'", "none"]),
        ({**VM, "path": {"burst": "15kB"}}, ["path.burst", "'15000B'", "virtual", "0B"]),
        ({**VM, "flows": [{"stop": "5s"}]}, ["flows.stop", "'5s'"]),
        ({**VM, "flows": [{"pattern": "idle 1s 1s"}]}, ["flows.pattern", "'idle 1s 1s'", "bulk"]),
        ({**VM, "flows": [{"sender": 2}]}, ["flows.sender", "'2'"]),
        ({**VM, "flows": [{"sender": 2}], "senders": [{"share": 0.5}]}, ["flows.sender"]),
        ({**VM, "contention": {"share": 0.4, "driver": "competitor"}}, ["contention.share", "0.4", "1/2"]),
        ({**VM, "path": {"buffer": "17sp"}}, ["path.buffer", "'17sp'", "frames"]),
        ({"path": {"buffer": "17sp", "aqm": "codel"}}, ["path.buffer", "17sp", "codel"]),
        ({**VM, "flows": [{"count": 129}]}, ["flows.count", "129", "128"]),
        ({**VM, "flows": [{}] * 9}, ["flows", "9 groups", "8"]),
        ({**VM, "cpu": {"frequency": "1GHz"}}, ["cpu.frequency", "'1GHz'"]),
        ({**VM, "nic": {"coalesce": "50us"}}, ["nic.coalesce", "'50us'", "virtual", "0s"]),
        ({**VM, "contention": {"alternate": "1s"}}, ["contention.alternate", "'1s'", "none"]),
        ({**VM, "receiver": {"share": 0.5}}, ["receiver.share", "'0.5'", "1"]),
        ({**VM, "receiver": {"replay": "a.csv"}}, ["receiver.replay", "'a.csv'", "leave it out"]),
        ({"receiver": {"driver": "burner", "share": 0.5}}, ["receiver.driver", "'burner'"]),
        ({**VM, "qdisc": "fq"}, ["qdisc", "'fq'", "none"]),
        ({**VM, "tso_sizing": "control", "flows": [{"cc": "bbr"}]}, ["tso_sizing", "'control'", "kernel"]),
        ({**VM, "samples": "ack"}, ["samples", "'ack'", "10ms"]),
        ({**VM, "samples": "500us"}, ["samples", "500us", "1ms"]),
        ({**VM, "packets": True}, ["packets", "'true'", "false"]),
        ({**VM, "traffic": "brobust"}, ["traffic", "'brobust'", "iperf3"]),
        ({**VM, "contention": {"replay": "a.csv"}}, ["replay", "a.csv", "cannot be read"]),
        ({**VM, "contention": {"start_jitter": 0.1}}, ["contention.start_jitter", "0.1", "burner"]),
        ({**VM, "contention": {"length_jitter": 0.1}}, ["contention.length_jitter", "0.1", "burner"]),
        ({**VM, "contention": {"phase": "5ms"}}, ["contention.phase", "5ms", "burner"]),
        (_burner(start_jitter=0.6), ["contention.start_jitter", "0.6", "at most 0.5"]),
        (_burner(length_jitter=0.6), ["contention.length_jitter", "0.6", "at most 0.5"]),
    ],
)
def test_what_it_cannot_do_is_refused_in_one_line(fields: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(BadInput) as refusal:
        backends.check([scenario(fields)])
    assert "\n" not in str(refusal.value)
    for word in words:
        assert word in str(refusal.value)
