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
    /// Events in the order in which they happened.
    pub events: &'a [Event],
    /// State throughout, if there is no event at all.
    pub if_silent: State,
    /// Events that were lost until the start, and until the end.
    pub lost_before: u64,
    pub lost: u64,
}

impl Observed<'_> {
    /// Returns intervals that cover start to end without gap or overlap (or to the thread's exit). No two neighbours have the
    /// same state.
    pub fn intervals(&self) -> Vec<Interval> {
        let mut timeline = Timeline::new(self.start_ns, self.end_ns);
        let mut state = self.first_state();
        let mut lost = self.lost_before;
        for event in self.events {
            if event.lost > lost {
                lost = event.lost;
                state = State::Unknown;
            }
            timeline.spend_until(event.ns, state);
            if event.kind == EventKind::Exited {
                return timeline.intervals;
            }
            state = state_after(event.kind, state);
        }
        if self.lost > lost {
            state = State::Unknown;
        }
        timeline.spend_until(self.end_ns, state);
        timeline.intervals
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
        let event = |&(ns, kind)| Event { ns, kind, lost: 0 };
        events.iter().map(event).collect()
    }

    /// The intervals between 100 and 200 as (start, duration, state).
    fn between_100_and_200(events: &[Event], if_silent: State, lost: u64) -> Vec<(u64, u64, State)> {
        let observed = Observed { start_ns: 100, end_ns: 200, before: None, events, if_silent, lost_before: 0, lost };
        let tuple = |i: &Interval| (i.start_ns, i.duration_ns, i.state);
        observed.intervals().iter().map(tuple).collect()
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
            events: &wakeup,
            if_silent: Asleep,
            lost_before: 2,
            lost: 2,
        };
        let states: Vec<_> = part.intervals().iter().map(|i| (i.duration_ns, i.state)).collect();
        assert_eq!(states, [(100, Running)]);
        assert_eq!(Observed { lost: 3, ..part }.intervals()[1].state, Unknown);
    }

    #[test]
    fn a_clock_that_steps_back_gives_no_negative_time() {
        let events = script(&[(150, SwitchedOutRunnable), (149, SwitchedIn)]);
        assert_eq!(between_100_and_200(&events, Asleep, 0), [(100, 100, Running)]);
    }
}
