//! A sweep as lines of text, and the explanation of what they say.

use std::fmt::Write;

use brobust_host::{printable, units};
use brobust_watch::{BdpSource, Cause, FlowReport, HostLoad, Owner, SweepReport};

/// What the columns of the sockets' lines are called, with their units.
const HEADING: [&str; 8] = ["cause", "cc", "Mbit/s", "inflight/BDP", "deficit", "from", "to", "owner"];

/// Writes sweep after sweep: the line of the sweep, and below it a line for each socket. The first sweep that has sockets
/// also has the heading of their columns, whose widths are the same in every sweep.
#[derive(Debug, Default)]
pub struct Lines {
    has_heading: bool,
}

impl Lines {
    pub fn of(&mut self, sweep: &SweepReport) -> String {
        let mut lines = vec![summary(sweep)];
        if !self.has_heading && !sweep.flows.is_empty() {
            lines.push(row(&HEADING.map(str::to_owned)));
            self.has_heading = true;
        }
        lines.extend(sweep.flows.iter().map(|flow| row(&cells(flow))));
        lines.iter().map(|line| printable(line)).collect::<Vec<_>>().join("\n")
    }
}

/// Returns the line of a socket. The longest cause and the longest name of a control (TCP_CA_NAME_MAX) fit into their
/// columns, and an IPv4 address with its port.
fn row(cells: &[String; 8]) -> String {
    let [cause, cc, rate, inflight, deficit, from, to, owner] = cells;
    format!("  {cause:15}  {cc:15}  {rate:>8}  {inflight:>12}  {deficit:>7}  {from:21}  {to:21}  {owner}")
}

/// Returns a sweep in one line: the number of sockets by cause, the host's CPUs, the reason for a deficit, and what could
/// not be read.
fn summary(sweep: &SweepReport) -> String {
    let counts = Cause::ALL.map(|cause| (cause, sweep.count(cause)));
    let causes: Vec<String> = counts
        .iter()
        .filter(|(_, number)| *number > 0)
        .map(|(cause, number)| format!("{number} {}", cause.name()))
        .collect();
    let causes = if causes.is_empty() { "none".to_owned() } else { causes.join(", ") };
    let sockets = units::show_count(sweep.sockets, "socket", "sockets");
    let mut line = format!("{sockets}: {causes}; {}", of_host(&sweep.host));
    if let Some(why) = &sweep.why {
        let _ = write!(line, "; cpu-limited: {why}");
    }
    if !sweep.unread.is_empty() {
        let _ = write!(line, "; not read: {}", sweep.unread.join("; "));
    }
    line
}

/// Returns what the host's CPUs did, in the words of the table (python/brobust/watch/text.py).
fn of_host(host: &HostLoad) -> String {
    let percent = |share: Option<f64>, digits: usize| {
        share.map_or_else(|| "unknown".to_owned(), |share| format!("{:.digits$}%", share * 100.0))
    };
    format!(
        "steal {}, late wake-ups {}, busiest CPU {}, PSI {}",
        percent(host.steal_share, 1),
        percent(host.late_share, 0),
        percent(host.busiest_share, 0),
        percent(host.pressure_share, 0)
    )
}

/// Returns what the line of a socket shows, in the order of the heading.
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
in flight than its bandwidth-delay product, or hardly more while the CPU is away for a tenth of the time: its sender
lacks the CPU to send more. The bandwidth estimate follows what is sent, so it falls as well.

What to do about it:
  give the VM its CPU                        steal, or a CPU quota on its vCPUs, is the usual reason
  sudo brobust cc load bbr_steady --dry-run  keeps BBR's pacing schedule although the CPU is taken away
                                             (docs/repair.md)
  sudo brobust cc load bbr_robust --dry-run  the repair from 2BRobust, for 40 % of a CPU and more (docs/repair.md)
  if one CPU is busy with many flows         use fewer flows, larger bursts, or a faster CPU (docs/findings.md)

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
    fn a_sweep_is_a_line_and_each_socket_is_another_below_one_heading() {
        let mut sweep = report(vec![count("bbr", "cpu-limited", 1), count("cubic", "app-limited", 2)]);
        sweep.why = Some("the CPU is taken away (25% steal)".to_owned());
        sweep.unread = vec!["/proc/stat: gone\u{1b}".to_owned()];
        sweep.flows[0].local = "[::ffff:192.0.2.7]:443".to_owned();
        let mut lines = Lines::default();
        let mut empty = report(vec![]);
        (empty.host, empty.flows) = (HostLoad::default(), vec![]);
        let unknown = "steal unknown, late wake-ups unknown, busiest CPU unknown, PSI unknown";
        assert_eq!(lines.of(&empty), format!("0 sockets: none; {unknown}"));
        let heading = "  cause            cc                 Mbit/s  inflight/BDP  deficit  from                   \
                       to                     owner";
        let socket = "  cpu-limited      bbr                  4.00          0.75        -  192.0.2.7:443          \
                      [2001:db8::1]:5000     -";
        let shown = lines.of(&sweep);
        let shown: Vec<&str> = shown.lines().collect();
        assert_eq!(
            shown[0],
            "3 sockets: 1 cpu-limited, 2 app-limited; steal 25.0%, late wake-ups 50%, busiest CPU 75%, PSI 12%; \
             cpu-limited: the CPU is taken away (25% steal); not read: /proc/stat: gone\\x1b"
        );
        assert_eq!(shown[1..], [heading, socket]);
        let next = lines.of(&report(vec![count("bbr", "cpu-limited", 1)]));
        assert!(next.starts_with("1 socket: ") && next.lines().count() == 2, "{next}");
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
