//! From scheduler events to what a thread did when. Pure: tests write the events.

/// What the kernel reported about one thread at one moment. The numbers are those of recorder.bpf.h (`enum event_kind`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    SwitchedIn,
    /// It was preempted or throttled, and would have gone on.
    SwitchedOutRunnable,
    SwitchedOutAsleep,
    Woken,
    Exited,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// CLOCK_MONOTONIC.
    pub ns: u64,
    pub kind: EventKind,
    /// Events of this thread that were lost before this one, counted from the beginning of the recording.
    pub lost: u64,
    /// How long the thread had waited for a CPU in all its life when it last got one; None where the kernel does not count.
    pub waited_ns: Option<u64>,
}

/// When a thread that waits began to, and how long it had waited in all its life until then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitsSince {
    ns: u64,
    waited_ns: Option<u64>,
}

/// What a thread is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    Running,
    /// It wants no CPU.
    Asleep,
    /// It wants a CPU and has none: contention.
    Waiting,
    /// Events were lost here.
    Unknown,
}

impl State {
    pub fn name(self) -> &'static str {
        match self {
            State::Running => "running",
            State::Asleep => "asleep",
            State::Waiting => "waiting",
            State::Unknown => "unknown",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    pub start_ns: u64,
    pub duration_ns: u64,
    pub state: State,
}

/// One thread's events between two moments, and what else is known about them.
#[derive(Debug, Clone)]
pub struct Observed<'a> {
    pub start_ns: u64,
    pub end_ns: u64,
    /// State at the start, if an earlier part of the recording tells it.
    pub before: Option<State>,
    /// Since when it waits at the start, if it does and an earlier part of the recording tells it.
    pub waits_since: Option<WaitsSince>,
    /// Events in the order in which they happened.
    pub events: &'a [Event],
    /// State throughout, if there is no event at all.
    pub if_silent: State,
    /// Events that were lost until the start, and until the end.
    pub lost_before: u64,
    pub lost: u64,
}

impl Observed<'_> {
    /// Returns intervals that cover start to end without gap or overlap (or to the thread's exit), and since when the thread
    /// waits at the end. No two neighbours have the same state.
    ///
    /// A thread that leaves a CPU had one. If it waited by what was reported until then, it was switched in by a thread whose
    /// switches this kernel reports to nobody (seen: those of a virtual machine's own agent, which is its process 1). The
    /// kernel counts how long it waited, so the switch is put where that says it was; else the time is unknown.
    pub fn intervals(&self) -> (Vec<Interval>, Option<WaitsSince>) {
        let mut timeline = Timeline::new(self.start_ns, self.end_ns);
        let mut state = self.first_state();
        let mut waits_since = self.waits_since;
        let mut lost = self.lost_before;
        for event in self.events {
            if event.lost > lost {
                lost = event.lost;
                (state, waits_since) = (State::Unknown, None);
            }
            if event.kind.leaves_a_cpu() && state != State::Running {
                state = match waits_since.and_then(|since| since.until(event)) {
                    Some(ns) => {
                        timeline.spend_until(ns, State::Waiting);
                        State::Running
                    }
                    None => State::Unknown,
                };
            }
            timeline.spend_until(event.ns, state);
            if event.kind == EventKind::Exited {
                return (timeline.intervals, None);
            }
            let before = state;
            state = state_after(event.kind, before);
            if state != State::Waiting {
                waits_since = None;
            } else if before != State::Waiting {
                waits_since = Some(WaitsSince { ns: event.ns, waited_ns: event.waited_ns });
            }
        }
        if self.lost > lost {
            (state, waits_since) = (State::Unknown, None);
        }
        timeline.spend_until(self.end_ns, state);
        (timeline.intervals, waits_since)
    }

    /// Infers the state before the first event from that event.
    fn first_state(&self) -> State {
        if let Some(state) = self.before {
            return state;
        }
        let Some(first) = self.events.first() else {
            return self.if_silent;
        };
        match first.kind {
            EventKind::SwitchedIn => State::Waiting,
            EventKind::Woken => State::Asleep,
            EventKind::SwitchedOutRunnable | EventKind::SwitchedOutAsleep | EventKind::Exited => State::Running,
        }
    }
}

impl WaitsSince {
    /// Returns when the wait ended, by what the kernel had counted when the thread left the CPU that it then got.
    fn until(self, left: &Event) -> Option<u64> {
        let waited_ns = left.waited_ns?.checked_sub(self.waited_ns?)?;
        Some(left.ns.min(self.ns + waited_ns))
    }
}

impl EventKind {
    fn leaves_a_cpu(self) -> bool {
        matches!(self, Self::SwitchedOutRunnable | Self::SwitchedOutAsleep | Self::Exited)
    }
}

fn state_after(kind: EventKind, before: State) -> State {
    match kind {
        EventKind::SwitchedIn => State::Running,
        EventKind::SwitchedOutRunnable => State::Waiting,
        EventKind::SwitchedOutAsleep => State::Asleep,
        EventKind::Woken if before == State::Running => State::Running,
        EventKind::Woken => State::Waiting,
        EventKind::Exited => State::Asleep,
    }
}

/// Intervals that are being built.
struct Timeline {
    intervals: Vec<Interval>,
    now_ns: u64,
    end_ns: u64,
}

impl Timeline {
    fn new(start_ns: u64, end_ns: u64) -> Self {
        Self { intervals: Vec::new(), now_ns: start_ns, end_ns }
    }

    /// Appends the time until then. Events from before the start or after the end (the programs are attached a little longer)
    /// only count for the state they lead to; a clock that steps back between CPUs gives no negative interval.
    fn spend_until(&mut self, until_ns: u64, state: State) {
        let until_ns = until_ns.min(self.end_ns);
        if until_ns <= self.now_ns {
            return;
        }
        let duration_ns = until_ns - self.now_ns;
        match self.intervals.last_mut() {
            Some(last) if last.state == state => last.duration_ns += duration_ns,
            _ => self.intervals.push(Interval { start_ns: self.now_ns, duration_ns, state }),
        }
        self.now_ns = until_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::EventKind::{Exited, SwitchedIn, SwitchedOutAsleep, SwitchedOutRunnable, Woken};
    use super::State::{Asleep, Running, Unknown, Waiting};
    use super::*;

    /// Events at these times, none lost.
    fn script(events: &[(u64, EventKind)]) -> Vec<Event> {
        let event = |&(ns, kind)| Event { ns, kind, lost: 0, waited_ns: None };
        events.iter().map(event).collect()
    }

    /// The intervals between 100 and 200 as (start, duration, state).
    fn between_100_and_200(events: &[Event], if_silent: State, lost: u64) -> Vec<(u64, u64, State)> {
        let observed = Observed {
            start_ns: 100,
            end_ns: 200,
            before: None,
            waits_since: None,
            events,
            if_silent,
            lost_before: 0,
            lost,
        };
        let tuple = |i: &Interval| (i.start_ns, i.duration_ns, i.state);
        observed.intervals().0.iter().map(tuple).collect()
    }

    #[test]
    fn a_preempted_thread_waits_until_it_is_switched_in() {
        let events = script(&[(110, SwitchedOutRunnable), (150, SwitchedIn)]);
        assert_eq!(
            between_100_and_200(&events, Asleep, 0),
            [(100, 10, Running), (110, 40, Waiting), (150, 50, Running)]
        );
    }

    #[test]
    fn a_sleeper_waits_only_from_its_wakeup() {
        let events = script(&[(110, SwitchedOutAsleep), (150, Woken), (155, SwitchedIn)]);
        assert_eq!(
            between_100_and_200(&events, Asleep, 0),
            [(100, 10, Running), (110, 40, Asleep), (150, 5, Waiting), (155, 45, Running)]
        );
    }

    #[test]
    fn the_first_event_tells_what_was_before_it() {
        let first = |kind| between_100_and_200(&script(&[(130, kind)]), Asleep, 0)[0].2;
        assert_eq!(first(SwitchedIn), Waiting);
        assert_eq!(first(Woken), Asleep);
        assert_eq!(first(SwitchedOutRunnable), Running);
        assert_eq!(first(SwitchedOutAsleep), Running);
    }

    #[test]
    fn a_thread_without_events_was_in_one_state_throughout() {
        for state in [Running, Asleep, Waiting] {
            assert_eq!(between_100_and_200(&[], state, 0), [(100, 100, state)]);
        }
    }

    #[test]
    fn a_wakeup_of_a_running_or_waiting_thread_changes_nothing() {
        let events = script(&[(110, SwitchedIn), (120, Woken), (130, SwitchedOutRunnable), (140, Woken)]);
        assert_eq!(
            between_100_and_200(&events, Asleep, 0),
            [(100, 10, Waiting), (110, 20, Running), (130, 70, Waiting)]
        );
    }

    #[test]
    fn events_outside_the_recording_only_set_the_state() {
        let events = script(&[(90, SwitchedOutRunnable), (210, SwitchedIn)]);
        assert_eq!(between_100_and_200(&events, Asleep, 0), [(100, 100, Waiting)]);
    }

    #[test]
    fn nothing_is_said_of_the_time_after_an_exit() {
        let events = script(&[(150, Exited)]);
        assert_eq!(between_100_and_200(&events, Asleep, 0), [(100, 50, Running)]);
    }

    #[test]
    fn time_in_which_events_were_lost_is_unknown() {
        let mut events = script(&[(110, SwitchedOutRunnable), (150, SwitchedIn)]);
        events[1].lost = 3;
        assert_eq!(
            between_100_and_200(&events, Asleep, 3),
            [(100, 10, Running), (110, 40, Unknown), (150, 50, Running)]
        );
    }

    #[test]
    fn events_lost_at_the_beginning_and_at_the_end_leave_those_times_unknown() {
        let mut events = script(&[(120, SwitchedIn), (180, SwitchedOutAsleep)]);
        events[0].lost = 1;
        events[1].lost = 1;
        assert_eq!(
            between_100_and_200(&events, Asleep, 2),
            [(100, 20, Unknown), (120, 60, Running), (180, 20, Unknown)]
        );
    }

    #[test]
    fn a_part_goes_on_where_the_last_one_ended() {
        let wakeup = script(&[(150, Woken)]);
        let part = Observed {
            start_ns: 100,
            end_ns: 200,
            before: Some(Running),
            waits_since: None,
            events: &wakeup,
            if_silent: Asleep,
            lost_before: 2,
            lost: 2,
        };
        let states: Vec<_> = part.intervals().0.iter().map(|i| (i.duration_ns, i.state)).collect();
        assert_eq!(states, [(100, Running)]);
        assert_eq!(Observed { lost: 3, ..part }.intervals().0[1].state, Unknown);
    }

    #[test]
    fn a_switch_in_that_nobody_was_told_of_is_where_the_kernels_own_count_says() {
        let mut events = script(&[(110, SwitchedOutRunnable), (150, SwitchedOutAsleep), (160, Woken), (180, Exited)]);
        for (event, waited_ns) in events.iter_mut().zip([1000, 1015, 1015, 1018]) {
            event.waited_ns = Some(waited_ns);
        }
        let told = between_100_and_200(&events, Asleep, 0);
        let of_first = [(100, 10, Running), (110, 15, Waiting), (125, 25, Running)];
        assert_eq!(told[..3], of_first);
        assert_eq!(told[3..], [(150, 10, Asleep), (160, 3, Waiting), (163, 17, Running)]);
    }

    #[test]
    fn without_that_count_and_without_a_wakeup_the_time_is_unknown() {
        let events = script(&[(110, SwitchedOutRunnable), (150, SwitchedOutAsleep), (180, SwitchedOutAsleep)]);
        assert_eq!(
            between_100_and_200(&events, Asleep, 0),
            [(100, 10, Running), (110, 70, Unknown), (180, 20, Asleep)]
        );
    }

    #[test]
    fn a_wait_goes_on_in_the_next_part() {
        let counted = |ns, kind, waited_ns| Event { ns, kind, lost: 0, waited_ns: Some(waited_ns) };
        let first = [counted(190, SwitchedOutRunnable, 1000)];
        let first = Observed {
            start_ns: 100,
            end_ns: 200,
            before: Some(Running),
            waits_since: None,
            events: &first,
            if_silent: Asleep,
            lost_before: 0,
            lost: 0,
        };
        let waits_since = first.intervals().1;
        assert_eq!(Observed { lost: 1, ..first.clone() }.intervals().1, None);
        let second = [counted(250, SwitchedOutAsleep, 1025)];
        let second =
            Observed { start_ns: 200, end_ns: 300, before: Some(Waiting), waits_since, events: &second, ..first };
        let states: Vec<_> = second.intervals().0.iter().map(|i| (i.duration_ns, i.state)).collect();
        assert_eq!(states, [(15, Waiting), (35, Running), (50, Asleep)]);
    }

    #[test]
    fn a_clock_that_steps_back_gives_no_negative_time() {
        let events = script(&[(150, SwitchedOutRunnable), (149, SwitchedIn)]);
        assert_eq!(between_100_and_200(&events, Asleep, 0), [(100, 100, Running)]);
    }
}
