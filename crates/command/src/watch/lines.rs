//! A sweep as lines of text, and the explanation of what they say.

use std::fmt::Write;

use brobust_host::printable;
use brobust_watch::{BdpSource, Cause, FlowReport, Owner, SweepReport};

/// Returns the line of the sweep, and below it a line for each socket.
pub fn of(sweep: &SweepReport) -> String {
    let sockets = sweep.flows.iter().map(|flow| format!("  {}", cells(flow).join("  ")));
    let lines: Vec<String> = std::iter::once(summary(sweep)).chain(sockets).map(|line| printable(&line)).collect();
    lines.join("\n")
}

/// Returns a sweep in one line: the number of sockets by cause, steal, and the reason for a deficit.
fn summary(sweep: &SweepReport) -> String {
    let counts = Cause::ALL.map(|cause| (cause, sweep.count(cause)));
    let causes: Vec<String> = counts
        .iter()
        .filter(|(_, number)| *number > 0)
        .map(|(cause, number)| format!("{number} {}", cause.name()))
        .collect();
    let causes = if causes.is_empty() { "none".to_owned() } else { causes.join(", ") };
    let steal = sweep.host.steal_share.map_or_else(|| "unknown".to_owned(), |share| format!("{:.1}%", share * 100.0));
    let mut line = format!("{} sockets: {causes}; steal {steal}", sweep.sockets);
    for part in sweep.why.iter().chain(&sweep.unread) {
        line += "; ";
        line += part;
    }
    line
}

/// Returns what the line of a socket shows: cause, control, Mbit/s, in flight / BDP, deficit, both ends, owner.
fn cells(flow: &FlowReport) -> [String; 8] {
    let unknown = || "-".to_owned();
    let star = if flow.evidence.bdp_source == Some(BdpSource::Bbr) { "" } else { "*" };
    let netns = if flow.netns.is_empty() { String::new() } else { format!(" ({})", flow.netns) };
    [
        flow.cause.to_owned(),
        flow.cc.clone(),
        format!("{:.*}", if flow.rate_mbps < 1e4 { 2 } else { 0 }, flow.rate_mbps),
        flow.evidence.inflight_bdp.map_or_else(unknown, |inflight| format!("{inflight:.2}{star}")),
        flow.evidence.deficit_share.map_or_else(unknown, |share| format!("{:.0}%", share * 100.0)),
        plain_ipv4(&flow.local),
        plain_ipv4(&flow.remote) + &netns,
        owner(&flow.owner).unwrap_or_else(|| flow.cgroup_id.map_or_else(unknown, |id| format!("cgroup {id}"))),
    ]
}

/// Returns whose a socket is: NAMESPACE/POD/CONTAINER, or the path of its cgroup.
fn owner(owner: &Owner) -> Option<String> {
    if owner.pod.is_none() {
        return owner.cgroup.clone();
    }
    Some([&owner.namespace, &owner.pod, &owner.container].into_iter().flatten().cloned().collect::<Vec<_>>().join("/"))
}

/// Returns an IPv4 address in an IPv6 socket (`[::ffff:192.0.2.1]:443`) as a plain IPv4 address.
fn plain_ipv4(address: &str) -> String {
    let inner = address.strip_prefix("[::ffff:").and_then(|rest| rest.split_once(']'));
    inner.filter(|(ip, _)| ip.contains('.')).map_or_else(|| address.to_owned(), |(ip, port)| format!("{ip}{port}"))
}

const WHAT_TO_DO: &str = "
A flow is cpu-limited if it has data to send, room in its windows and no reason to drain its queue, and still has less
in flight than the bandwidth-delay product that it has estimated itself: its sender lacks the CPU to send more. The
bandwidth estimate follows what is sent, so it falls as well.

What to do about it:
  give the VM its CPU                       steal, or a CPU quota on its vCPUs, is the usual reason
  brobust cc load bbr_steady --dry-run      keeps BBR's pacing schedule although the CPU is taken away
                                            (docs/repair.md)
  brobust cc load bbr_robust --dry-run      the repair from 2BRobust, for 40 % of a CPU and more (docs/repair.md)
  if one CPU is busy with many flows        use fewer flows, larger bursts, or a faster CPU (docs/findings.md)

A flow is throttled if its application is late because the CPU limit of its container (cpu.max of its cgroup, or of one
above it) takes the CPU away: raise the limit or remove it, or spread the work over more containers.
";

/// Returns what the causes mean, and what to do about a lack of CPU.
pub fn explanation() -> String {
    let mut text = String::new();
    for cause in Cause::ALL {
        let _ = writeln!(text, "{:16} {}", cause.name(), cause.meaning());
    }
    text + WHAT_TO_DO
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::metrics::made_up::{count, flow, report};
    use brobust_watch::Evidence;

    #[test]
    fn a_sweep_is_a_line_and_each_socket_is_another() {
        let mut sweep = report(vec![count("bbr", "cpu-limited", 1), count("cubic", "app-limited", 2)]);
        sweep.why = Some("the CPU is taken away (25% steal)".to_owned());
        sweep.unread = vec!["/proc/stat: gone\u{1b}".to_owned()];
        sweep.flows[0].local = "[::ffff:192.0.2.7]:443".to_owned();
        assert_eq!(
            of(&sweep),
            "3 sockets: 1 cpu-limited, 2 app-limited; steal 25.0%; the CPU is taken away (25% steal); \
             /proc/stat: gone\\x1b\n  cpu-limited  bbr  4.00  0.75  -  192.0.2.7:443  [2001:db8::1]:5000  -"
        );
        let mut empty = report(vec![]);
        (empty.host.steal_share, empty.flows) = (None, vec![]);
        assert_eq!(of(&empty), "0 sockets: none; steal unknown");
    }

    #[test]
    fn a_number_that_is_no_own_estimate_has_a_star() {
        let evidence = Evidence { deficit_share: Some(0.5), bdp_source: None, ..flow("a", 0).evidence };
        let shown = cells(&FlowReport { rate_mbps: 98765.4, evidence, ..flow("a", 0) });
        assert_eq!(shown[2..5], ["98765", "0.75*", "50%"].map(str::to_owned));
    }

    #[test]
    fn the_owner_of_a_socket_is_shown_as_far_as_it_is_known() {
        let shown = |owner: Owner, cgroup_id| cells(&FlowReport { owner, cgroup_id, ..flow("a", 0) })[7].clone();
        let some = |text: &str| Some(text.to_owned());
        let service = Owner { cgroup: some("/system.slice/nginx.service"), ..Owner::default() };
        let unnamed = Owner { cgroup: some("/kubepods/x"), pod: some("2f1b"), ..Owner::default() };
        let pod = Owner { namespace: some("web"), pod: some("shop-1"), container: some("app"), ..unnamed.clone() };
        assert_eq!(shown(pod, Some(7)), "web/shop-1/app");
        assert_eq!(shown(unnamed, Some(7)), "2f1b");
        assert_eq!(shown(service, Some(7)), "/system.slice/nginx.service");
        assert_eq!(shown(Owner::default(), Some(7)), "cgroup 7");
        assert_eq!(shown(Owner::default(), None), "-");
    }
}
