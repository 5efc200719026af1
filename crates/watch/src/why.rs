//! Why sockets of a host are CPU-limited. The deficit says which sockets suffer; what the host reports about its CPUs
//! says why.

use crate::host::HostLoad;

/// From this much steal, or from this share of late wake-ups on, the CPU was taken away.
const MIN_STEAL_SHARE: f64 = 0.01;
const MIN_LATE_SHARE: f64 = 0.1;
/// A CPU that is this busy cannot do more work.
const MIN_BUSY_SHARE: f64 = 0.9;

/// Returns the reason for a deficit that the state of the host's CPUs suggests.
pub fn why(host: &HostLoad) -> String {
    let late = host.late_share.unwrap_or(0.0);
    let percent = |share: f64| format!("{:.0}%", share * 100.0);
    if let Some(steal) = host.steal_share.filter(|steal| *steal >= MIN_STEAL_SHARE) {
        return format!("the CPU is taken away ({} steal)", percent(steal));
    }
    let busy = host.busiest_share.filter(|busiest| *busiest >= MIN_BUSY_SHARE);
    if late >= MIN_LATE_SHARE && busy.is_none() {
        return format!("the CPU is taken away ({} of our wake-ups were late)", percent(late));
    }
    // No share tells the two apart: 16 flows made 68 % of the wake-ups of a busy guest late, whose CPU nobody took away;
    // where somebody did, it was 37 % and more (docs/watch.md).
    if late >= MIN_LATE_SHARE {
        return format!(
            "a CPU is busy, and {} of our wake-ups were late: either this host's own work delays them, or the CPU is \
             taken away for short times",
            percent(late)
        );
    }
    if let Some(busy) = busy {
        let busy = percent(busy);
        return format!("a CPU is busy ({busy}): pacing and the host's other work need more CPU time than there is");
    }
    if host.steal_share.is_none() || host.busiest_share.is_none() {
        return "the load of the host's CPUs could not be read".to_owned();
    }
    "during the sweeps the CPU was available, so this host's CPUs do not explain it".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALM: HostLoad =
        HostLoad { steal_share: Some(0.0), late_share: None, busiest_share: Some(0.2), pressure_share: None };

    #[test]
    fn the_host_says_why() {
        let said = |host: HostLoad| why(&host);
        assert_eq!(said(HostLoad { steal_share: Some(0.3), ..CALM }), "the CPU is taken away (30% steal)");
        let late = HostLoad { late_share: Some(0.4), ..CALM };
        assert_eq!(said(late), "the CPU is taken away (40% of our wake-ups were late)");
        for (late, words) in [(0.24, "24%"), (0.68, "68%")] {
            let both = said(HostLoad { late_share: Some(late), busiest_share: Some(0.97), ..CALM });
            assert!(["busy", words, "taken away"].iter().all(|word| both.contains(word)), "{both}");
        }
        let full = said(HostLoad { busiest_share: Some(0.97), ..CALM });
        assert!(full.contains("busy (97%)") && !full.contains("taken away"), "{full}");
        assert!(said(CALM).contains("was available"));
        for (least, less, says) in [
            (HostLoad { steal_share: Some(0.01), ..CALM }, HostLoad { steal_share: Some(0.0099), ..CALM }, "steal"),
            (HostLoad { late_share: Some(0.1), ..CALM }, HostLoad { late_share: Some(0.099), ..CALM }, "were late"),
            (HostLoad { busiest_share: Some(0.9), ..CALM }, HostLoad { busiest_share: Some(0.89), ..CALM }, "is busy"),
        ] {
            assert!(said(least).contains(says) && said(less).contains("was available"), "{says}");
        }
        let unread = said(HostLoad { steal_share: None, busiest_share: None, ..CALM });
        assert!(unread.contains("could not be read"), "{unread}");
    }
}
