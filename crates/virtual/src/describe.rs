//! What each kernel of a run is to be, in the memory that it shares with the controller.
use std::net::IpAddr;

use crate::ports::FIRST_PORT;
use crate::programs::{self, Program};
use crate::qdisc::{self, Aqm};
use crate::scenario::{CpuCost, Flow, Pattern, Scenario, VcpuOf};
use crate::shared::{self, pattern, role, Shared};
use crate::topology::Topology;

/// Writes into the shared memory what the kernel of node `number` is to be.
pub fn describe(
    shared: &mut Shared,
    scenario: &Scenario,
    topology: Topology,
    number: usize,
    programs: &[&Program],
    origin: u64,
) {
    // Each kernel of a run has random numbers of its own, and another seed gives all of them others.
    shared.seed = scenario.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(number as u64);
    shared.role = match number {
        sender if sender < topology.senders => role::SENDER,
        receiver if receiver == topology.receiver() => role::RECEIVER,
        _ => role::BOTTLENECK,
    };
    (shared.address, shared.receiver) = (topology.address(number), topology.address(topology.receiver()));
    (shared.first_port, shared.flows) = (u32::from(FIRST_PORT), scenario.connections() as u32);
    shared.transfers_from = scenario.flows.len() as u32;
    shared.tcp_memory = scenario.tcp_memory;
    (shared.tx_completion, shared.coalesce) = (scenario.tx_completion, scenario.coalesce);
    shared.tso_max_size = scenario.tso_max_size;
    shared.every_ack = (scenario.record.samples.is_some() || scenario.programs.is_some()).into();
    (shared.adaptive_rx, shared.gro, shared.rx_ring) =
        (scenario.adaptive_rx.into(), scenario.gro.into(), scenario.rx_ring);
    if let Some(sender) = scenario.senders.get(number) {
        let CpuCost { timer, rx_packet, tx_skb, tx_byte } = sender.cpu;
        (shared.timer_cost, shared.rx_packet_cost, shared.tx_skb_cost, shared.tx_byte_cost) =
            (timer, rx_packet, tx_skb, tx_byte);
        let VcpuOf { rx, tx } = sender.vcpus;
        (shared.vcpus, shared.rx_vcpu, shared.tx_vcpu) = (sender.schedule.cpus() as u32, rx, tx);
        shared.qdisc = shared::text(&scenario.qdisc);
        shared.pacing_lag_us = scenario.pacing_lag_us;
    }
    shared.ip_version = scenario.ip_version.into();
    let mut commands = match topology.ip_address(number) {
        IpAddr::V6(address) => qdisc::ipv6(address),
        IpAddr::V4(_) => Vec::new(),
    };
    commands.extend(match (shared.role, &scenario.aqm) {
        (role::BOTTLENECK, Some(aqm)) => qdisc::commands(aqm),
        _ if !programs.is_empty() => qdisc::loopback_up(),
        _ => Vec::new(),
    });
    shared.commands[..commands.len()].copy_from_slice(&commands);
    shared.commands_size = commands.len() as u32;
    shared.ecn = scenario.aqm.as_ref().is_some_and(Aqm::ecn).into();
    shared.programs = programs.len() as u32;
    if let Some(given) = &scenario.programs {
        shared.carry_payload = 1;
        (shared.call_cost, shared.poll_cost) = (given.call, given.poll);
        for (to, program) in shared.program.iter_mut().zip(programs) {
            programs::describe(to, program, &given.environment, origin);
        }
    }
    for (place, flow) in scenario.flows.iter().enumerate().filter(|(_, flow)| flow.sender == number) {
        shared.flow[place] = describe_flow(flow, scenario.duration, origin);
    }
    if let Some(transfers) = scenario.transfers.as_ref().filter(|transfers| transfers.sender == number) {
        let (cc, stop) = (shared::text(&transfers.cc), origin + scenario.duration);
        for (to, (start, bytes)) in shared.flow[scenario.flows.len()..].iter_mut().zip(&transfers.each) {
            let (start, bytes_or_on_ns) = (origin + start, *bytes);
            let pattern = pattern::BULK;
            *to = shared::Flow { used: 1, pattern, start, stop, bytes_or_on_ns, period_or_off_ns: 0, cc };
        }
    }
}

/// Returns a flow as the kernel reads it.
fn describe_flow(flow: &Flow, duration: u64, origin: u64) -> shared::Flow {
    let (pattern, bytes_or_on_ns, period_or_off_ns) = match flow.pattern {
        Pattern::Bulk { bytes } => (pattern::BULK, bytes.unwrap_or(0), 0),
        Pattern::Rate { bytes, every } => (pattern::RATE, bytes, every),
        Pattern::Onoff { on, off } => (pattern::ONOFF, on, off),
        Pattern::Idle { after, silence } => (pattern::IDLE, after, silence),
    };
    let (start, stop) = (origin + flow.start, origin + flow.stop.unwrap_or(duration));
    let cc = shared::text(&flow.cc);
    shared::Flow { used: 1, pattern, start, stop, bytes_or_on_ns, period_or_off_ns, cc }
}
