// As UML's seccomp mode does (Linux 6.16): SECCOMP_RET_TRAP, the SIGSYS handler hands over by a futex and waits.
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
static volatile int *turn;
static void hand(int to,int from){*turn=to;syscall(SYS_futex,turn,FUTEX_WAKE,1,0,0,0);while(*turn!=from)syscall(SYS_futex,turn,FUTEX_WAIT,to,0,0,0);}
static void sys(int s,siginfo_t*i,void*u){(void)s;(void)i;hand(1,0);((ucontext_t*)u)->uc_mcontext.gregs[REG_RAX]=1;}
static double cpu(int who){struct rusage r;getrusage(who,&r);return r.ru_utime.tv_sec+r.ru_stime.tv_sec+1e-6*(r.ru_utime.tv_usec+r.ru_stime.tv_usec);}
int main(int c,char**v){int n=atoi(v[1]);turn=mmap(0,4096,3,MAP_SHARED|MAP_ANONYMOUS,-1,0);*turn=0;
 pid_t p=fork();
 if(!p){struct sigaction a={.sa_sigaction=sys,.sa_flags=SA_SIGINFO};sigaction(SIGSYS,&a,0);
  struct sock_filter f[]={BPF_STMT(BPF_LD|BPF_W|BPF_ABS,offsetof(struct seccomp_data,nr)),BPF_JUMP(BPF_JMP|BPF_JEQ|BPF_K,SYS_getppid,0,1),BPF_STMT(BPF_RET|BPF_K,SECCOMP_RET_TRAP),BPF_STMT(BPF_RET|BPF_K,SECCOMP_RET_ALLOW)};
  struct sock_fprog g={4,f};prctl(PR_SET_NO_NEW_PRIVS,1,0,0,0);if(prctl(PR_SET_SECCOMP,2,&g))_exit(1);for(;;)syscall(SYS_getppid);}
 while(*turn!=1)syscall(SYS_futex,turn,FUTEX_WAIT,0,0,0,0);
 double a=cpu(RUSAGE_SELF);for(int i=0;i<n;i++)hand(0,1);double b=cpu(RUSAGE_SELF);
 kill(p,SIGKILL);int st;waitpid(p,&st,0);printf("seccomp: tracer %.2f us, tracee %.2f us a stop\n",(b-a)/n*1e6,cpu(RUSAGE_CHILDREN)/n*1e6);}
