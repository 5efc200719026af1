"""CPU seconds of the host for a virtual second at 100 Mbit/s: the difference of runs of 3 s and 1 s."""
import resource, statistics, sys, brobust
def used(): return sum(r.ru_utime+r.ru_stime for r in (resource.getrusage(resource.RUSAGE_SELF),resource.getrusage(resource.RUSAGE_CHILDREN)))
NG={"programs":{"sender":"nginx -c /nginx.conf","receiver":"curl -sSf -o /dev/null http://{sender}:{port}/page","waits":"sender","files":["nginx.conf","page"]}}
WHAT={"quic-go":({"traffic":"quic:quic-go"},"reno"),"noq":({"traffic":"quic:noq"},"bbr3"),"quinn":({"traffic":"quic:quinn"},"bbr"),"nginx":(NG,"bbr"),"nginx-client":({"programs":{**NG["programs"],"receiver":"brobust-client get http://{sender}:{port}/page --rate 100 --for 0.05 --connections 1 --patience 3600"}},"bbr")}
def one(name,seconds,repeat,more):
    of,cc=WHAT[name]; b=used()
    r=brobust.run({**of,"flows":[{"cc":cc}],"duration":f"{seconds}s","path":{"bandwidth":"100mbit","rtt":"10ms","buffer":"4bdp"},**more},repeat=repeat)
    return used()-b, r.runs["throughput_mbps"][0]
for name in sys.argv[1].split(","):
    for label,more in (("as it is",{}),("adaptive NIC",{"nic":{"adaptive_rx":"on"}})):
        if len(sys.argv)<3 and more: continue
        one(name,1,0,more); v=[]
        for rep in range(3):
            a,_=one(name,1,rep,more); c,t=one(name,3,rep,more); v.append((c-a)/2)
        print(name,label,"median %.3f (%.3f to %.3f)"%(statistics.median(v),min(v),max(v)),"Mbit/s %.1f"%t,flush=True)
