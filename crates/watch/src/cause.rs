//! Names what limits a flow, from a window of samples.
//!
//! Causes are checked in the order of how certain their evidence is. The stack itself counts the time in which the
//! receiver's window or the send buffer was the limit. An application that writes too little leaves no data waiting; if
//! its CPU limit throttled it meanwhile, that is why it wrote too little. Only where a flow has data, room in its windows
//! and no reason to drain does too little in flight mean that its sender lacked the CPU (the Inflight Deficit of 2BRobust,
//! section 6.1).

use serde::{Serialize, Serializer};

use crate::history::History;
use crate::sample::{BdpSource, Sample};

/// Fewest samples for a verdict.
pub const MIN_SAMPLES: usize = 4;
/// A cause is named if it holds for more than this share of the time or of the samples.
const MAJORITY_SHARE: f64 = 0.5;
/// A window or a buffer is the limit from this share of the busy time on. The stack counts a limit as soon as it binds,
/// also between two ACKs; less than this is no more than that.
const LIMITED_SHARE: f64 = 0.2;
/// A flow with less than this in flight, in BDP, has a deficit.
const DEFICIT_BDP: f64 = 1.0;
/// Our sampler runs when TCP runs, so it sees each flow just after the flow has sent what it could. Where the CPU is
/// away for more than this share of the time, a deficit may therefore be invisible: a flow that only pacing holds back
/// then counts as CPU-limited if it has no queue, or hardly one and falls behind its pacing rate.
const AWAY_SHARE: f64 = 0.1;
/// A flow falls behind its pacing rate if less than this share of what pacing would have sent was acknowledged.
const KEPT_PACE_SHARE: f64 = 0.95;
/// A flow with less than this in flight, in BDP, has no queue.
const NO_QUEUE_BDP: f64 = 1.25;
/// A flow with as much as this in flight, in BDP, has a queue: the path is the limit, however fast BBR would pace. On
/// VMs, undisturbed flows had 1.45 to 2.7, and those that lacked the CPU up to 1.42.
const QUEUE_BDP: f64 = 1.5;
/// An application whose cgroup was throttled for more than this share of the time is late because of it.
const THROTTLED_SHARE: f64 = 0.1;
/// A deficit means something only if the flow could send in at least one out of this many samples.
const SAMPLES_PER_COULD_SEND: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    CpuLimited,
    Throttled,
    NetworkLimited,
    RwndLimited,
    SndbufLimited,
    AppLimited,
    Undecided,
}

impl Serialize for Cause {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

impl Cause {
    /// Every cause, in the order in which users see them.
    pub const ALL: [Cause; 7] = [
        Cause::CpuLimited,
        Cause::Throttled,
        Cause::NetworkLimited,
        Cause::RwndLimited,
        Cause::SndbufLimited,
        Cause::AppLimited,
        Cause::Undecided,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Cause::CpuLimited => "cpu-limited",
            Cause::Throttled => "throttled",
            Cause::NetworkLimited => "network-limited",
            Cause::RwndLimited => "rwnd-limited",
            Cause::SndbufLimited => "sndbuf-limited",
            Cause::AppLimited => "app-limited",
            Cause::Undecided => "undecided",
        }
    }

    /// Returns what the cause means, as the end of a sentence about a socket.
    pub fn meaning(self) -> String {
        let percent = |share: f64| format!("{:.0}%", share * 100.0);
        match self {
            Cause::CpuLimited => "it had data and room to send, but its sender lacked the CPU".to_owned(),
            Cause::Throttled => format!(
                "a CPU limit throttled its application in more than {} of the time, and it lacked data to send, or \
                 nothing else is known to limit it",
                percent(THROTTLED_SHARE)
            ),
            Cause::NetworkLimited => format!("{DEFICIT_BDP} BDP or more is in flight: the path is the limit"),
            Cause::RwndLimited => {
                format!("the receiver's window is the limit in more than {} of its busy time", percent(LIMITED_SHARE))
            }
            Cause::SndbufLimited => {
                format!("the send buffer is the limit in more than {} of its busy time", percent(LIMITED_SHARE))
            }
            Cause::AppLimited => {
                format!("in more than {} of the time there was nothing to send", percent(MAJORITY_SHARE))
            }
            Cause::Undecided => {
                format!("there are fewer than {MIN_SAMPLES} samples, no estimate, or no sign of a cause")
            }
        }
    }
}

/// What the verdict is based on. Shares are of the window's time or of its samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Evidence {
    pub samples: usize,
    /// From the first sample to the last.
    pub seconds: f64,
    /// Bytes acknowledged per second.
    #[serde(skip)]
    pub rate_bytes_per_s: f64,
    /// Bytes acknowledged over the bytes that pacing at each sample's rate would have sent; what BBR paced at in STARTUP
    /// does not count. None if nothing is paced.
    pub paced_share: Option<f64>,
    /// Share of the time in which data was in the socket or in flight.
    pub busy_share: Option<f64>,
    /// Share of the time in which the receiver's window was the limit.
    pub rwnd_limited_share: Option<f64>,
    /// Share of the time in which the send buffer was the limit.
    pub sndbuf_limited_share: Option<f64>,
    /// Share of the samples in which data was waiting, or as much as cwnd allows was in flight, and the stack did not
    /// say that the application was the limit.
    pub data_share: f64,
    /// Number of samples in which a deficit means something.
    pub could_send: usize,
    /// Share of those samples that had a deficit.
    pub deficit_share: Option<f64>,
    /// Median of the samples that have an estimate.
    pub inflight_bdp: Option<f64>,
    /// `bbr`: BBR's own estimates; `delivery-rate`: delivery rate times min RTT.
    pub bdp_source: Option<BdpSource>,
    /// Share of the bytes sent that were retransmissions.
    pub retransmit_share: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Verdict {
    pub cause: Cause,
    pub evidence: Evidence,
}

/// What happened to the CPU in the window.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Cpu {
    /// Share of the time in which it was taken away from the host ([`crate::HostLoad::away_share`]).
    pub away_share: f64,
    /// Share of the time in which the CPU limit of the flow's cgroup throttled its application. 0 if this is unknown.
    pub throttled_share: f64,
}

pub fn judge(history: &History, cpu: Cpu) -> Verdict {
    let evidence = gather(history);
    Verdict { cause: cause_of(&evidence, cpu), evidence }
}

/// Sums up a flow's samples.
pub fn gather(history: &History) -> Evidence {
    let (Some(first), Some(last)) = (history.first(), history.last()) else { return Evidence::default() };
    let (samples, seconds) = (history.count(), history.seconds());
    let per_second = |from: u64, to: u64| if seconds > 0.0 { to.saturating_sub(from) as f64 / seconds } else { 0.0 };
    let share = |counter: fn(&Sample) -> Option<u64>| {
        let (from, to) = (counter(first)?, counter(last)?);
        (seconds > 0.0).then(|| (per_second(from, to) / 1e6).min(1.0))
    };
    let part = |chosen: f64, all: f64| if all > 0.0 { chosen / all } else { 0.0 };
    let counted = |counter: fn(&Sample) -> Option<u64>| Some(counter(last)?.saturating_sub(counter(first)?) as f64);
    let (mut with_data, mut could_send, mut deficits, mut paced, mut pacing_rates) = (0, 0, 0, 0, 0.0);
    for (sample, times) in history.iter() {
        if sample.has_data() && !sample.is_app_limited {
            with_data += times;
        }
        if let Some(inflight) = sample.inflight_bdp().filter(|_| sample.could_send()) {
            could_send += times;
            if inflight < DEFICIT_BDP {
                deficits += times;
            }
        }
        if let Some(rate) = sample.pacing_rate_bytes_per_s.filter(|_| !sample.is_starting) {
            paced += times;
            pacing_rates += rate as f64 * times as f64;
        }
    }
    let pacing_rate = part(pacing_rates, paced as f64);
    let rate_bytes_per_s = per_second(first.bytes_acked, last.bytes_acked);
    Evidence {
        samples,
        seconds,
        rate_bytes_per_s,
        paced_share: (pacing_rate > 0.0).then(|| rate_bytes_per_s / pacing_rate),
        busy_share: share(|sample| sample.busy_us),
        rwnd_limited_share: share(|sample| sample.rwnd_limited_us),
        sndbuf_limited_share: share(|sample| sample.sndbuf_limited_us),
        data_share: part(with_data as f64, samples as f64),
        could_send,
        deficit_share: (could_send > 0).then(|| part(deficits as f64, could_send as f64)),
        inflight_bdp: median_inflight_bdp(history),
        bdp_source: last.bdp.map(|(_, source)| source),
        retransmit_share: counted(|sample| sample.bytes_retrans)
            .zip(counted(|sample| sample.bytes_sent))
            .map(|(again, sent)| part(again, sent)),
    }
}

fn cause_of(evidence: &Evidence, cpu: Cpu) -> Cause {
    if evidence.samples < MIN_SAMPLES || evidence.seconds <= 0.0 {
        return Cause::Undecided;
    }
    let is_throttled = cpu.throttled_share > THROTTLED_SHARE;
    let busy = evidence.busy_share.unwrap_or(1.0);
    // Whatever was the limit while there was data, most of the time there was none.
    if is_throttled && busy < MAJORITY_SHARE {
        return Cause::Throttled;
    }
    let is_limit = |share: Option<f64>| share.is_some_and(|share| share > LIMITED_SHARE * busy);
    if is_limit(evidence.rwnd_limited_share) {
        return Cause::RwndLimited;
    }
    if is_limit(evidence.sndbuf_limited_share) {
        return Cause::SndbufLimited;
    }
    if busy < MAJORITY_SHARE || evidence.data_share < MAJORITY_SHARE {
        return if is_throttled { Cause::Throttled } else { Cause::AppLimited };
    }
    // From here on data waits for the kernel to send it. A CPU limit does not throttle the kernel's own work, so it does
    // not explain a deficit.
    match cpu_or_network(evidence, cpu.away_share) {
        Cause::Undecided if is_throttled => Cause::Throttled,
        cause => cause,
    }
}

fn cpu_or_network(evidence: &Evidence, away_share: f64) -> Cause {
    // The stack has a pacing rate for every socket; only of BBR's sockets is it known that they send at that rate.
    let is_paced = evidence.bdp_source == Some(BdpSource::Bbr);
    let has_less_than = |bdp: f64| is_paced && evidence.inflight_bdp.is_some_and(|inflight| inflight < bdp);
    let falls_behind = has_less_than(QUEUE_BDP) && evidence.paced_share.is_some_and(|share| share < KEPT_PACE_SHARE);
    let without_queue = has_less_than(NO_QUEUE_BDP);
    match evidence.deficit_share {
        _ if evidence.could_send * SAMPLES_PER_COULD_SEND < evidence.samples => network_or_undecided(evidence),
        Some(deficit) if deficit > MAJORITY_SHARE => Cause::CpuLimited,
        Some(_) if away_share > AWAY_SHARE && (falls_behind || without_queue) => Cause::CpuLimited,
        _ => network_or_undecided(evidence),
    }
}

fn network_or_undecided(evidence: &Evidence) -> Cause {
    if evidence.inflight_bdp.is_some_and(|inflight| inflight >= DEFICIT_BDP) {
        Cause::NetworkLimited
    } else {
        Cause::Undecided
    }
}

fn median_inflight_bdp(history: &History) -> Option<f64> {
    let mut values: Vec<(f64, usize)> =
        history.iter().filter_map(|(sample, times)| Some((sample.inflight_bdp()?, times))).collect();
    values.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    let middle = values.iter().map(|(_, times)| times).sum::<usize>() / 2;
    let mut passed = 0;
    values.iter().find_map(|(value, times)| {
        passed += times;
        (passed > middle).then_some(*value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A bulk flow of 20 Mbit/s over 10 ms with one and a half BDP in flight, a sample a second.
    fn bulk(number: u64) -> Sample {
        Sample {
            bytes_acked: number * 2_500_000,
            bytes_sent: Some(number * 2_500_000),
            bytes_retrans: Some(0),
            busy_us: Some(number * 1_000_000),
            rwnd_limited_us: Some(0),
            sndbuf_limited_us: Some(0),
            notsent_bytes: 100_000,
            inflight_bytes: 37_500,
            cwnd_bytes: 50_000,
            pacing_rate_bytes_per_s: Some(2_500_000),
            bdp: Some((25_000, BdpSource::Bbr)),
            ..Sample::default()
        }
    }

    fn flow_of(samples: u64, change: impl Fn(u64, &mut Sample)) -> History {
        let mut history = History::default();
        for number in 1..=samples {
            let mut sample = bulk(number);
            change(number, &mut sample);
            history.add(number * 1_000_000_000, sample);
        }
        history
    }

    fn flow(change: impl Fn(u64, &mut Sample)) -> History {
        flow_of(10, change)
    }

    fn away(away_share: f64) -> Cpu {
        Cpu { away_share, ..Cpu::default() }
    }

    fn cause(change: impl Fn(u64, &mut Sample)) -> Cause {
        judge(&flow(change), away(0.0)).cause
    }

    #[test]
    fn the_documentation_states_the_thresholds() {
        let page = include_str!("../../../docs/watch.md");
        let is_row =
            |line: &&str| line.starts_with("| `") && Cause::ALL.iter().any(|cause| line.contains(cause.name()));
        let rows: Vec<&str> = page.lines().filter(is_row).collect();
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        for (cause, words) in [
            (Cause::RwndLimited, format!("more than {} of the busy time", percent(LIMITED_SHARE))),
            (Cause::SndbufLimited, format!("more than {} of the busy time", percent(LIMITED_SHARE))),
            (Cause::AppLimited, format!("more than {}", percent(MAJORITY_SHARE))),
            (Cause::CpuLimited, format!("more than {}", percent(MAJORITY_SHARE))),
            (Cause::CpuLimited, format!("less than {DEFICIT_BDP} BDP")),
            (Cause::CpuLimited, format!("away for more than {} of the time", percent(AWAY_SHARE))),
            (Cause::CpuLimited, format!("`paced_share` below {KEPT_PACE_SHARE}")),
            (Cause::CpuLimited, format!("less than {NO_QUEUE_BDP} BDP")),
            (Cause::CpuLimited, format!("less than {QUEUE_BDP} BDP")),
            (Cause::Throttled, format!("more than {} of the time", percent(THROTTLED_SHARE))),
            (Cause::NetworkLimited, format!("{DEFICIT_BDP} BDP or more")),
            (Cause::Undecided, format!("fewer than {MIN_SAMPLES} samples")),
        ] {
            let said =
                rows.iter().any(|row| row.starts_with(&format!("| `{}` |", cause.name())) && row.contains(&words));
            assert!(said, "docs/watch.md does not say of {}: {words}", cause.name());
        }
    }

    #[test]
    fn each_limit_has_its_name() {
        assert_eq!(cause(|_, _| ()), Cause::NetworkLimited);
        assert_eq!(cause(|_, sample| sample.inflight_bytes = 12_000), Cause::CpuLimited);
        assert_eq!(cause(|number, sample| sample.rwnd_limited_us = Some(number * 800_000)), Cause::RwndLimited);
        assert_eq!(cause(|number, sample| sample.sndbuf_limited_us = Some(number * 800_000)), Cause::SndbufLimited);
        let app = |_, sample: &mut Sample| (sample.notsent_bytes, sample.inflight_bytes) = (0, 5_000);
        assert_eq!(cause(app), Cause::AppLimited);
        assert_eq!(cause(|number, sample| sample.busy_us = Some(number * 200_000)), Cause::AppLimited);
    }

    #[test]
    fn a_deficit_that_bbr_wants_or_that_is_rare_does_not_count() {
        let draining = |_, sample: &mut Sample| (sample.is_draining, sample.inflight_bytes) = (true, 5_000);
        assert_eq!(cause(draining), Cause::Undecided);
        let seldom = |number: u64, sample: &mut Sample| {
            if number % 3 == 0 {
                sample.inflight_bytes = 5_000;
            }
        };
        assert_eq!(cause(seldom), Cause::NetworkLimited);
        // It could send in three of ten samples, which is not one of three; or in four.
        for (number, expected) in [(3, Cause::Undecided), (4, Cause::CpuLimited)] {
            let draining_after = |at: u64, sample: &mut Sample| {
                (sample.is_draining, sample.inflight_bytes) = (at > number, 5_000);
            };
            assert_eq!(cause(draining_after), expected, "{number}");
        }
        let flagged = |_, sample: &mut Sample| (sample.is_app_limited, sample.inflight_bytes) = (true, 5_000);
        assert_eq!(cause(flagged), Cause::AppLimited);
        let recovering = |_, sample: &mut Sample| (sample.is_recovering, sample.inflight_bytes) = (true, 5_000);
        assert_ne!(cause(recovering), Cause::CpuLimited);
    }

    #[test]
    fn where_the_cpu_is_away_a_flow_that_falls_behind_its_pacing_rate_is_cpu_limited() {
        let behind = |_, sample: &mut Sample| {
            (sample.pacing_rate_bytes_per_s, sample.inflight_bytes) = (Some(3_500_000), 35_000);
        };
        assert_eq!(judge(&flow(behind), away(0.02)).cause, Cause::NetworkLimited);
        assert_eq!(judge(&flow(behind), away(0.5)).cause, Cause::CpuLimited);
        assert_eq!(judge(&flow(|_, _| ()), away(0.5)).cause, Cause::NetworkLimited);
        let cruising = |_, sample: &mut Sample| sample.inflight_bytes = 26_000;
        assert_eq!(judge(&flow(cruising), away(0.02)).cause, Cause::NetworkLimited);
        assert_eq!(judge(&flow(cruising), away(0.5)).cause, Cause::CpuLimited);
        let unpaced = |_, sample: &mut Sample| {
            behind(0, sample);
            sample.bdp = Some((25_000, BdpSource::DeliveryRate));
        };
        assert_eq!(judge(&flow(unpaced), away(0.5)).cause, Cause::NetworkLimited);
        // A flow that fills its window waits for ACKs, not for the CPU.
        let full = |_, sample: &mut Sample| {
            behind(0, sample);
            (sample.notsent_bytes, sample.inflight_bytes) = (0, sample.cwnd_bytes);
        };
        assert_eq!(judge(&flow(full), away(0.5)).cause, Cause::NetworkLimited);
        // A queue of half a BDP tells that the path has all it can carry.
        let queued = |_, sample: &mut Sample| {
            behind(0, sample);
            sample.inflight_bytes = 37_500;
        };
        assert_eq!(judge(&flow(queued), away(0.5)).cause, Cause::NetworkLimited);
    }

    #[test]
    fn what_bbr_paces_at_in_startup_is_nothing_to_fall_behind() {
        let began = |number: u64, sample: &mut Sample| {
            sample.inflight_bytes = 35_000;
            if number < 4 {
                (sample.pacing_rate_bytes_per_s, sample.is_starting) = (Some(7_000_000), true);
            }
        };
        let verdict = judge(&flow(began), away(0.5));
        assert_eq!((verdict.cause, verdict.evidence.paced_share), (Cause::NetworkLimited, Some(1.0)));
    }

    #[test]
    fn where_a_cpu_limit_throttles_the_application_it_is_why_there_is_no_data_and_explains_nothing_else() {
        let throttled = |change: &dyn Fn(u64, &mut Sample)| {
            judge(&flow(change), Cpu { throttled_share: 0.5, ..Cpu::default() }).cause
        };
        let late = |number: u64, sample: &mut Sample| sample.busy_us = Some(number * 200_000);
        let without_data = |_, sample: &mut Sample| (sample.notsent_bytes, sample.inflight_bytes) = (0, 5_000);
        assert_eq!([throttled(&late), throttled(&without_data)], [Cause::Throttled; 2]);
        // While it ran, it filled the receiver's window; most of the time it did not run.
        let filled = |number: u64, sample: &mut Sample| {
            late(number, sample);
            sample.rwnd_limited_us = Some(number * 100_000);
        };
        assert_eq!((cause(filled), throttled(&filled)), (Cause::RwndLimited, Cause::Throttled));
        // It wrote enough, although it was throttled.
        assert_eq!(throttled(&|_, _| ()), Cause::NetworkLimited);
        assert_eq!(throttled(&|number, sample| sample.rwnd_limited_us = Some(number * 800_000)), Cause::RwndLimited);
        assert_eq!(throttled(&|_, sample| sample.inflight_bytes = 12_000), Cause::CpuLimited);
        // Nothing else is known of it, though it has data: its meaning must not say that it lacks some.
        assert_eq!(throttled(&|_, sample| sample.bdp = None), Cause::Throttled);
        assert!(Cause::Throttled.meaning().ends_with("it lacked data to send, or nothing else is known to limit it"));
        let hardly = Cpu { throttled_share: THROTTLED_SHARE, ..Cpu::default() };
        assert_eq!(judge(&flow(late), hardly).cause, Cause::AppLimited);
        assert_eq!(judge(&flow_of(3, late), Cpu { throttled_share: 1.0, ..hardly }).cause, Cause::Undecided);
    }

    #[test]
    fn what_is_not_known_is_not_guessed() {
        assert_eq!(judge(&History::default(), away(0.0)).cause, Cause::Undecided);
        assert_eq!(judge(&flow_of(3, |_, _| ()), away(0.0)).cause, Cause::Undecided);
        let without_estimate = |_, sample: &mut Sample| sample.bdp = None;
        assert_eq!(cause(without_estimate), Cause::Undecided);
        // A kernel before 4.10 does not count limits; the other evidence is still enough.
        let old = |_, sample: &mut Sample| {
            (sample.busy_us, sample.rwnd_limited_us, sample.sndbuf_limited_us) = (None, None, None);
            sample.inflight_bytes = 12_000;
        };
        assert_eq!(cause(old), Cause::CpuLimited);
    }

    #[test]
    fn the_evidence_is_what_was_seen() {
        let verdict = judge(
            &flow(|number, sample| {
                sample.inflight_bytes = if number <= 6 { 12_500 } else { 40_000 };
                sample.bytes_retrans = Some(number * 25_000);
            }),
            away(0.0),
        );
        let evidence = verdict.evidence;
        assert_eq!((evidence.samples, evidence.seconds), (10, 9.0));
        assert_eq!(evidence.rate_bytes_per_s, 2_500_000.0);
        assert_eq!(evidence.deficit_share, Some(0.6));
        assert_eq!(evidence.inflight_bdp, Some(0.5));
        assert_eq!(evidence.retransmit_share, Some(0.01));
        assert_eq!(evidence.busy_share, Some(1.0));
    }

    #[test]
    fn an_idle_flow_is_judged_as_if_each_sample_were_kept() {
        let idle = |_, sample: &mut Sample| *sample = Sample { notsent_bytes: 0, inflight_bytes: 0, ..bulk(1) };
        let mut history = flow(idle);
        assert_eq!((history.count(), history.iter().count()), (10, 1));
        let verdict = judge(&history, away(0.0));
        assert_eq!((verdict.cause, verdict.evidence.samples, verdict.evidence.seconds), (Cause::AppLimited, 10, 9.0));

        history.add(11_000_000_000, Sample { bytes_acked: bulk(1).bytes_acked + 1_000_000, ..bulk(1) });
        history.forget_before(3_000_000_000, 4);
        let evidence = judge(&history, away(0.0)).evidence;
        assert_eq!((evidence.samples, evidence.seconds, evidence.rate_bytes_per_s), (9, 8.0, 125_000.0));
        assert_eq!((evidence.inflight_bdp, evidence.data_share), (Some(0.0), 1.0 / 9.0));
        history.forget_before(u64::MAX, 4);
        assert_eq!((history.count(), history.iter().count()), (4, 2));
        history.forget_before(11_000_000_000, 0);
        assert_eq!((history.count(), history.iter().count(), history.first()), (1, 1, history.last()));
        history.forget_before(u64::MAX, 0);
        assert_eq!((history.count(), history.first()), (0, None));
    }

    proptest! {
        /// Counters may be torn, wrap, or go back where a socket was replaced: there is a verdict, and shares are from
        /// 0 to 1.
        #[test]
        fn no_samples_make_it_panic(numbers in prop::collection::vec(any::<[u64; 6]>(), 0..12)) {
            let mut history = History::default();
            numbers.iter().for_each(|n| history.add(n[0], Sample {
                bytes_acked: n[1], bytes_sent: Some(n[2]), bytes_retrans: Some(n[3]), busy_us: Some(n[4]),
                rwnd_limited_us: Some(n[5]), inflight_bytes: n[1] >> 16, cwnd_bytes: n[2] >> 16, ..bulk(0)
            }));
            let Verdict { evidence, .. } = judge(&history, away(0.5));
            let shares = [evidence.busy_share, evidence.rwnd_limited_share, evidence.deficit_share];
            for share in shares.into_iter().flatten() {
                prop_assert!((0.0..=1.0).contains(&share));
            }
            prop_assert!(evidence.rate_bytes_per_s.is_finite());
        }
    }
}
