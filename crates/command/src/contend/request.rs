//! What the options ask for: how the CPU is to be taken away, and whether that is possible on this host.

use brobust_contention::{held, ContentionError, Promise};
use brobust_host::{general, printable, units, Refusal, Result};
use brobust_timeline::{Schedule, Slices};
use clap::ValueEnum;

use super::recordings;
use crate::numbers;

/// A scenario has the same maximum, and may have 50us (python/brobust/scenario/fields.py).
const MIN_TIMESLICE_NS: u64 = 100_000;
const DEFAULT_TIMESLICE_NS: u64 = 10_000_000;
const MAX_TIMESLICE_NS: u64 = 4_000_000_000;
const MAX_PERIOD_NS: u64 = 3_600_000_000_000;

/// With more, a tenth of the timeslices would be so short that the contention is called unfaithful, and off-times so short
/// that they are taken for interrupts (crates/contention/src/summary.rs, noise_limit_ns).
const MAX_JITTER: f64 = 0.5;

const MAX_COMPETITORS: u32 = 64;
/// Largest difference between the share asked for and that of one of n equals.
const SHARE_PRECISION: f64 = 0.005;

/// A way of taking the CPU away from threads. python/brobust/drivers has the same ones for runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Driver {
    Burner,
    Competitor,
    Deadline,
    Quota,
    Replay,
}

/// When several threads are off their CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Phase {
    Random,
    In,
    Out,
}

/// How to take the CPU away.
#[derive(Debug, Clone, PartialEq, clap::Args)]
pub struct Options {
    /// Share of a CPU that each thread gets, 0.25 or 25%
    #[arg(long, value_name = "SHARE", value_parser = share)]
    share: Option<f64>,
    /// How long each thread runs at a time; with the quota, how much it runs in each timeslice / share [default: 10ms]
    #[arg(long = "timeslice", value_name = "TIME", value_parser = timeslice)]
    timeslice_ns: Option<u64>,
    /// burner (a real-time thread on its CPU, exact at any tick rate), competitor (busy processes on its CPU, for a share
    /// of 1/2, 1/3, ...), deadline (SCHED_DEADLINE), quota (a cgroup's bandwidth limit; the kernel chooses the
    /// timeslices), replay (the burner at recorded off-times) [default: deadline]
    #[arg(long, value_name = "NAME", hide_possible_values = true)]
    driver: Option<Driver>,
    /// Replay these recorded off-times: FILE or FILE#THREAD
    #[arg(long, value_name = "RECORDING", conflicts_with_all = ["share", "timeslice_ns"])]
    pub replay: Option<String>,
    /// With the burner: whether several threads lose their CPUs at once (in), in turn (out) or at random
    #[arg(long, value_name = "PHASE", default_value = "random", hide_possible_values = true)]
    phase: Phase,
    /// With the burner: each timeslice begins at a random point in this part of its off-time, 0 to 0.5
    #[arg(long, value_name = "PART", default_value = "0", value_parser = jitter)]
    start_jitter: f64,
    /// With the burner: timeslices and off-times are longer or shorter by a random part up to this, 0 to 0.5
    #[arg(long, value_name = "PART", default_value = "0", value_parser = jitter)]
    length_jitter: f64,
    /// Busy processes beside each thread [default: 1 / share - 1]
    #[arg(long, value_name = "N", conflicts_with = "share")]
    #[arg(value_parser = numbers::within(1..=MAX_COMPETITORS))]
    competitors: Option<u32>,
    /// Nice level of the busy processes
    #[arg(long, value_name = "N", default_value = "0", allow_negative_numbers = true)]
    #[arg(value_parser = numbers::within(-20..=19))]
    pub nice: i32,
}

fn timeslice(text: &str) -> std::result::Result<u64, String> {
    let allowed = |ns: &u64| (MIN_TIMESLICE_NS..=MAX_TIMESLICE_NS).contains(ns);
    Some(units::nanoseconds(text)?).filter(allowed).ok_or_else(|| "allowed: 100us to 4s".to_owned())
}

fn share(text: &str) -> std::result::Result<f64, String> {
    let allowed = |share: &f64| *share > 0.0 && *share < 1.0;
    let share = Some(units::share(text)?).filter(allowed);
    share.ok_or_else(|| format!("{text} is not between 0 and 1; give for example 0.25 or 25%"))
}

fn jitter(text: &str) -> std::result::Result<f64, String> {
    let allowed = |part: &f64| (0.0..=MAX_JITTER).contains(part);
    Some(units::share(text)?).filter(allowed).ok_or_else(|| format!("give a number from 0 to {MAX_JITTER}"))
}

/// A request that one driver can carry out.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    pub options: Options,
    pub driver: Driver,
    pub timeslice_ns: u64,
    pub share: f64,
    /// Busy processes beside each thread; 0 for other drivers.
    competitors: u32,
    /// The off-times of a recording: begin and length, ns.
    pub offtimes: Vec<(u64, u64)>,
}

impl Options {
    /// Returns the request; refuses what excludes each other, whatever the host is.
    pub fn request(&self) -> Result<Request> {
        let default = if self.replay.is_some() { Driver::Replay } else { Driver::Deadline };
        let driver = self.driver.unwrap_or(default);
        let (timeslice_ns, mut share) = (self.timeslice_ns.unwrap_or(DEFAULT_TIMESLICE_NS), self.share.unwrap_or(1.0));
        if timeslice_ns as f64 / MAX_PERIOD_NS as f64 > share {
            return Err(bad(format!(
                "--share: {} in timeslices of {} ms makes a period, timeslice / share, of more than 3600s; give a larger share",
                general(share, 6),
                general(timeslice_ns as f64 / 1e6, 6)
            )));
        }
        self.refuse_contradictions(driver)?;
        self.refuse_what_it_does_not_take(driver)?;
        let mut competitors = 0;
        if driver == Driver::Competitor {
            competitors = self.competitors(share)?;
            share = 1.0 / (f64::from(competitors) + 1.0);
        }
        let offtimes = self.replay.as_deref().map_or(Ok(Vec::new()), recordings::offtimes)?;
        if self.share.is_none() && self.replay.is_none() && competitors == 0 {
            let beside = if driver == Driver::Competitor { ", or --competitors N" } else { "" };
            return Err(bad(format!(
                "--share is missing: give how much of a CPU each thread is to have, for example 25%{beside}"
            )));
        }
        Ok(Request { options: self.clone(), driver, timeslice_ns, share, competitors, offtimes })
    }

    fn refuse_contradictions(&self, driver: Driver) -> Result<()> {
        let name = driver.name();
        if let (Driver::Competitor, Some(ns)) = (driver, self.timeslice_ns) {
            let given = general(ns as f64 / 1e6, 6);
            return Err(bad(format!(
                "--timeslice: {given} ms does not go with --driver competitor, beside which the host's scheduler chooses \
                 the timeslices; leave one out"
            )));
        }
        match &self.replay {
            Some(replay) if driver != Driver::Replay => {
                Err(bad(format!("--driver: {name} does not replay {replay}; give --driver replay, or leave it out")))
            }
            None if driver == Driver::Replay => {
                Err(bad("--driver: replay has nothing to replay; give --replay FILE".into()))
            }
            _ => Ok(()),
        }
    }

    fn refuse_what_it_does_not_take(&self, driver: Driver) -> Result<()> {
        let jitter = |part: f64| (part != 0.0).then(|| general(part, 6));
        let options = [
            (Driver::Burner, "phase", (self.phase != Phase::Random).then(|| name_of(self.phase)), "random"),
            (Driver::Burner, "start-jitter", jitter(self.start_jitter), "0"),
            (Driver::Burner, "length-jitter", jitter(self.length_jitter), "0"),
            (Driver::Competitor, "competitors", self.competitors.map(|count| count.to_string()), "none"),
            (Driver::Competitor, "nice", (self.nice != 0).then(|| self.nice.to_string()), "0"),
        ];
        for (owner, option, given, unset) in options {
            if let Some(given) = given.filter(|_| owner != driver) {
                let (owner, name) = (owner.name(), driver.name());
                return Err(bad(format!(
                    "--{option}: {given} is the {owner}'s, and driver {name} does not take it; give driver {owner}, or \
                     {unset}"
                )));
            }
        }
        Ok(())
    }

    /// Returns how many busy processes are to be beside each thread; 0 if nothing says it.
    fn competitors(&self, share: f64) -> Result<u32> {
        match (self.competitors, self.share) {
            (Some(count), _) => Ok(count),
            (None, None) => Ok(0),
            (None, Some(_)) => competitors_for(share).ok_or_else(|| {
                bad(format!(
                    "--share: driver competitor gives one of n equals its part, not {} ({}%); give 1/2 (50%), 1/3 (33.3%), \
                     1/4 (25%), ...",
                    general(share, 6),
                    general(100.0 * share, 6)
                ))
            }),
        }
    }
}

fn bad(text: String) -> Refusal {
    Refusal::bad_input(text)
}

/// Returns how a value of an option is written.
fn name_of(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
}

/// Returns how many busy processes beside a thread leave it this share; None if no number does.
fn competitors_for(share: f64) -> Option<u32> {
    let count = (1.0 / share).round() - 1.0;
    let fits =
        (1.0..=f64::from(MAX_COMPETITORS)).contains(&count) && (1.0 / (count + 1.0) - share).abs() < SHARE_PRECISION;
    fits.then_some(count as u32)
}

impl Driver {
    pub fn name(self) -> String {
        name_of(self)
    }

    /// The driver of brobust_contention that does it.
    pub fn carried_out_by(self) -> String {
        let driver = if self == Self::Replay { Self::Burner } else { self };
        driver.name()
    }

    /// Whether each thread has to be pinned to a CPU of its own, which the driver then keeps busy.
    pub fn needs_own_cpus(self) -> bool {
        match self {
            Self::Burner | Self::Competitor | Self::Replay => true,
            Self::Deadline | Self::Quota => false,
        }
    }

    /// What threads are held to. None: a recording, or nothing, since the host's scheduler decides.
    pub fn promise(self) -> Option<Promise> {
        match self {
            Self::Burner => Some(Promise::Timeslices),
            Self::Deadline => Some(Promise::TimeslicesAtTicks),
            Self::Quota => Some(Promise::Share),
            Self::Competitor | Self::Replay => None,
        }
    }
}

impl Request {
    /// One timeslice and its off-time, ns.
    pub fn period_ns(&self) -> u64 {
        (self.timeslice_ns as f64 / self.share).round() as u64
    }

    /// The off-time of each period, ns; None where the driver promises none.
    pub fn off_ns(&self) -> Option<u64> {
        self.driver.promise().map(|_| self.period_ns() - self.timeslice_ns)
    }

    /// The recording as it was named; empty without one.
    pub fn recording(&self) -> &str {
        self.options.replay.as_deref().unwrap_or_default()
    }

    /// Returns in a few words what is done to the threads.
    pub fn describe(&self) -> String {
        match self.driver {
            Driver::Competitor => {
                let processes = units::show_count(self.competitors as usize, "busy process", "busy processes");
                format!("beside {processes} of nice {}", self.options.nice)
            }
            Driver::Replay => format!("off its CPU as in {}", printable(self.recording())),
            driver => {
                let (share, name) = (general(self.share, 4), driver.name());
                let [timeslice, period] = [self.timeslice_ns, self.period_ns()].map(|ns| general(ns as f64 / 1e6, 6));
                match driver.promise() {
                    Some(Promise::Share) => format!(
                        "{share} of a CPU, {timeslice} ms in every {period} ms, in slices that the kernel chooses ({name})"
                    ),
                    _ => format!("{share} of a CPU in slices of {timeslice} ms ({name})"),
                }
            }
        }
    }

    /// Returns when a CPU may run. `seed`: for what is drawn.
    pub fn schedule(&self, phase_ns: u64, seed: u64) -> Schedule {
        let plain = Slices::plain(self.timeslice_ns, self.period_ns());
        match self.driver {
            Driver::Replay => Schedule::Replay { offtimes: self.offtimes.clone() },
            Driver::Burner => Schedule::Slices(Slices {
                phase: Some(phase_ns),
                start_jitter: self.options.start_jitter,
                length_jitter: self.options.length_jitter,
                seed,
                ..plain
            }),
            _ => Schedule::Slices(plain),
        }
    }

    /// Returns when the first whole period of each of `count` threads begins, ns: all at once, evenly over a period, or
    /// anywhere in it, as `draw` says.
    pub fn phases_ns(&self, count: usize, mut draw: impl FnMut() -> u64) -> Vec<u64> {
        let (period, count) = (self.period_ns(), count as u64);
        let phase = |number| match self.options.phase {
            Phase::In => 0,
            Phase::Out => number * period / count,
            Phase::Random => draw() % period,
        };
        (0..count).map(phase).collect()
    }

    /// Refuses what is not possible on this host with these threads. Changes nothing.
    pub fn check(&self, threads: &[i32]) -> Result<()> {
        let name = self.driver.name();
        held::check(&self.driver.carried_out_by(), &self.schedule(0, 0), threads, threads.len().max(1)).map_err(
            |error| match error {
                ContentionError::Refused(refusal) => refusal,
                error => bad(format!("--driver {name}: {error}")),
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn asked(words: &str) -> Result<Request> {
        let line = Line::try_parse_from(std::iter::once("contend").chain(words.split_whitespace()));
        line.map_err(|error| bad(error.to_string()))?.options.request()
    }

    #[test]
    fn what_excludes_each_other_is_refused_with_what_is_allowed() {
        let cases: [(&str, &[&str]); 20] = [
            ("", &["--share is missing"]),
            ("--driver competitor", &["--share is missing", "--competitors N"]),
            ("--share 0.25 --driver magic", &["--driver", "'magic'", "burner"]),
            ("--share 1.5", &["--share", "1.5"]),
            ("--share 0", &["--share", "0 is not between 0 and 1"]),
            ("--share 25% --timeslice fast", &["--timeslice", "'fast'"]),
            ("--share 25% --timeslice 5s", &["--timeslice", "5s", "100us to 4s"]),
            ("--share 0.0001% --timeslice 4s", &["--share", "a larger share"]),
            ("--share 25% --phase in", &["--phase", "burner"]),
            ("--share 25% --phase left", &["--phase", "'left'"]),
            ("--share 25% --start-jitter 0.1", &["--start-jitter", "burner"]),
            ("--share 25% --driver quota --length-jitter 0.1", &["--length-jitter", "burner's", "quota"]),
            ("--share 25% --driver burner --length-jitter 0.7", &["0.7", "--length-jitter", "from 0 to 0.5"]),
            ("--driver competitor --share 40%", &["--share", "40%", "1/2"]),
            ("--driver competitor --share 50% --competitors 1", &["--competitors", "--share"]),
            ("--driver replay", &["--replay FILE"]),
            ("--driver burner --replay no-such.csv", &["burner does not replay no-such.csv"]),
            ("--replay no-such.csv --share 0.5", &["--replay", "--share"]),
            ("--replay no-such.csv --timeslice 5ms", &["--replay", "--timeslice"]),
            ("--driver competitor --share 50% --timeslice 5ms", &["--timeslice: 5 ms", "--driver competitor"]),
        ];
        for (given, words) in cases {
            let refused = asked(given).expect_err(given).text;
            assert!(words.iter().all(|word| refused.contains(word)), "{given}: {refused}");
        }
    }

    #[test]
    fn a_request_says_what_it_does() {
        let of = |words: &str| asked(words).expect(words);
        assert_eq!(of("--share 25%").describe(), "0.25 of a CPU in slices of 10 ms (deadline)");
        assert_eq!(
            of("--share 50% --driver quota").describe(),
            "0.5 of a CPU, 10 ms in every 20 ms, in slices that the kernel chooses (quota)"
        );
        assert_eq!(of("--driver competitor --share 50%").describe(), "beside 1 busy process of nice 0");
        assert_eq!(of("--driver competitor --share 33.3%").describe(), "beside 2 busy processes of nice 0");
        let burner = of("--driver burner --share 40% --timeslice 20ms --phase out");
        assert_eq!((burner.period_ns(), burner.off_ns()), (50_000_000, Some(30_000_000)));
        assert_eq!(of("--driver competitor --competitors 3 --nice -5").options.nice, -5);
        assert_eq!(of("--driver burner --share 40% --start-jitter 25%").options.start_jitter, 0.25);
        let scratch = tempfile::tempdir().expect("made");
        let recording = scratch.path().join("a\x1b[2J.csv");
        std::fs::write(&recording, "start_s,duration_ms\n1,2\n").expect("written");
        let described = of(&format!("--replay {}", recording.display())).describe();
        assert!(described.ends_with("a\\x1b[2J.csv"), "a terminal would act on it: {described}");
    }

    #[test]
    fn phases() {
        let of = |phase: &str| asked(&format!("--driver burner --share 50% --timeslice 15ms --phase {phase}"));
        let phases = |phase: &str, draw: u64| of(phase).expect(phase).phases_ns(3, || draw);
        assert_eq!(phases("in", 7), [0, 0, 0]);
        assert_eq!(phases("out", 7), [0, 10_000_000, 20_000_000]);
        assert_eq!(phases("random", 30_000_007), [7, 7, 7]);
    }
}
