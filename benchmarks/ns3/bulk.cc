// One bulk TCP flow over a bottleneck, simulated by ns-3: what benchmarks/speed.py sets beside
// virtual time.
//
// Two nodes and a point-to-point link between them: the sender's device is the bottleneck, with a
// drop-tail queue of its own and no queueing discipline over it. That is the least work with which
// ns-3 can simulate such a path.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <string>

#include <ns3/core-module.h>
#include <ns3/internet-module.h>
#include <ns3/network-module.h>
#include <ns3/point-to-point-module.h>

namespace
{

constexpr std::uint16_t kPort = 10000;
// As the virtual backend gives its sockets: no flow may be limited by them.
constexpr std::uint32_t kSocketBufferBytes = 67108864;
constexpr std::uint32_t kWriteBytes = 65536;

struct Options {
	std::string cc = "TcpCubic";
	std::string rate = "100Mbps";
	std::string rtt = "10ms";
	std::string buffer = "1500000B";
	double seconds = 20;
	std::uint32_t segment_bytes = 1448;
	std::uint32_t segments_per_ack = 2;
};

Options Read(int argc, char **argv)
{
	Options options;
	ns3::CommandLine command(__FILE__);
	command.AddValue("cc", "congestion control: TcpCubic, TcpBbr", options.cc);
	command.AddValue("rate", "of the bottleneck: 100Mbps, 1Gbps", options.rate);
	command.AddValue("rtt", "without queueing: 10ms", options.rtt);
	command.AddValue("buffer", "of the bottleneck, in bytes or packets: 1500000B, 1000p",
			 options.buffer);
	command.AddValue("seconds", "simulated", options.seconds);
	command.AddValue("segment", "payload of a segment, bytes", options.segment_bytes);
	command.AddValue("segments-per-ack", "of the receiver: 2 with delayed ACKs, 1 without",
			 options.segments_per_ack);
	command.Parse(argc, argv);
	return options;
}

void SetDefaults(const Options &options)
{
	using ns3::Config::SetDefault;
	SetDefault("ns3::TcpL4Protocol::SocketType",
		   ns3::TypeIdValue(ns3::TypeId::LookupByName("ns3::" + options.cc)));
	SetDefault("ns3::TcpSocket::SegmentSize", ns3::UintegerValue(options.segment_bytes));
	SetDefault("ns3::TcpSocket::DelAckCount", ns3::UintegerValue(options.segments_per_ack));
	SetDefault("ns3::TcpSocket::SndBufSize", ns3::UintegerValue(kSocketBufferBytes));
	SetDefault("ns3::TcpSocket::RcvBufSize", ns3::UintegerValue(kSocketBufferBytes));
	SetDefault("ns3::TcpSocketBase::Sack", ns3::BooleanValue(true));
	SetDefault("ns3::TcpSocketBase::Timestamp", ns3::BooleanValue(true));
}

// Always has something to send. Returns when the socket takes no more.
void Write(ns3::Ptr<ns3::Socket> socket, std::uint32_t room)
{
	while (room > 0) {
		const auto size = std::min(room, kWriteBytes);
		if (socket->Send(ns3::Create<ns3::Packet>(size)) < 0) {
			return;
		}
		room = socket->GetTxAvailable();
	}
}

struct Receiver {
	std::uint64_t bytes = 0;

	void Accept(ns3::Ptr<ns3::Socket> socket, const ns3::Address & /*from*/)
	{
		socket->SetRecvCallback(ns3::MakeCallback(&Receiver::Read, this));
	}

	void Read(ns3::Ptr<ns3::Socket> socket)
	{
		while (const auto packet = socket->Recv()) {
			bytes += packet->GetSize();
		}
	}
};

} // namespace

int main(int argc, char **argv)
{
	const auto options = Read(argc, argv);
	SetDefaults(options);

	ns3::NodeContainer nodes(2);
	ns3::PointToPointHelper link;
	link.SetDeviceAttribute("DataRate", ns3::StringValue(options.rate));
	link.SetChannelAttribute("Delay", ns3::TimeValue(ns3::Time(options.rtt) / 2));
	link.SetQueue("ns3::DropTailQueue", "MaxSize", ns3::StringValue(options.buffer));
	// Then no queueing discipline is put over the device, and its queue drops what finds it
	// full.
	link.DisableFlowControl();
	const auto devices = link.Install(nodes);
	ns3::InternetStackHelper().Install(nodes);
	ns3::Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.0");
	const auto interfaces = addresses.Assign(devices);

	Receiver receiver;
	const auto listening =
	    ns3::Socket::CreateSocket(nodes.Get(1), ns3::TcpSocketFactory::GetTypeId());
	listening->Bind(ns3::InetSocketAddress(ns3::Ipv4Address::GetAny(), kPort));
	listening->Listen();
	listening->SetAcceptCallback(
	    ns3::MakeNullCallback<bool, ns3::Ptr<ns3::Socket>, const ns3::Address &>(),
	    ns3::MakeCallback(&Receiver::Accept, &receiver));
	const auto sending =
	    ns3::Socket::CreateSocket(nodes.Get(0), ns3::TcpSocketFactory::GetTypeId());
	sending->SetSendCallback(ns3::MakeCallback(&Write));
	ns3::Simulator::ScheduleNow([&] {
		sending->Bind();
		sending->Connect(ns3::InetSocketAddress(interfaces.GetAddress(1), kPort));
	});

	const auto begun = std::chrono::steady_clock::now();
	ns3::Simulator::Stop(ns3::Seconds(options.seconds));
	ns3::Simulator::Run();
	const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begun;

	const auto device = devices.Get(0)->GetObject<ns3::PointToPointNetDevice>();
	std::cout << R"({"throughput_mbps": )" << receiver.bytes * 8e-6 / options.seconds
		  << R"(, "received_bytes": )" << receiver.bytes << R"(, "drops": )"
		  << device->GetQueue()->GetTotalDroppedPackets() << R"(, "frames": )"
		  << device->GetQueue()->GetTotalReceivedPackets() << R"(, "simulated_s": )"
		  << options.seconds << R"(, "wall_s": )" << wall.count() << "}\n";
	ns3::Simulator::Destroy();
	return 0;
}
