/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hearth, one epoch: the coordinator's log, configurations, promises, decisions. For SPIN.
 *
 * 4 nodes, node 0 the coordinator. O objects per save (owners 1, 2, 0), saves 0..S-1; save 0 is
 * PROTECTED and kept at the start (the recovered one). The log is a row of states ("heads"); each
 * says: who is lost, the holder map, the newest decided save, what is kept, and whether the map is
 * settled (every assigned holder has promised what is kept under this very configuration).
 * A head once told is a fact: it reaches a node at any later time, again, or never. So is a promise.
 * Nodes go silent and come back; engines restart; one node (or two, one after the other) is lost for good;
 * pairs of nodes may be unable to pull from each other though all live; the user may give up a kept save.
 *
 * Comments name the messages of the code that an event stands for; README.md has the list.
 *
 * Switches (-D): bounds O, S, C, MINC, KEEP, NSIL, NLOSS, NCR, NMR, NCUT, NREL,
 * NSTG, FLIGHT, RM, SPARE, P; mutants below.
 */
#ifndef O
#define O 2         /* objects in a save */
#endif
#ifndef S
#define S 3         /* saves, the recovered one included */
#endif
#ifndef C
#define C 1         /* copies */
#endif
#ifndef MINC
#define MINC 1      /* min_copies */
#endif
#ifndef KEEP
#define KEEP 1
#endif
#ifndef NSIL
#define NSIL 1      /* silences */
#endif
#ifndef NLOSS
#define NLOSS 1     /* real losses; the next only when the last is repaired */
#endif
#ifndef NCR
#define NCR 1       /* restarts of the coordinator's engine */
#endif
#ifndef NMR
#define NMR 0       /* restarts of members' engines (all a member needs is on record: a restart is no event, unless FORGET) */
#endif
#ifndef RM
#define RM 99       /* room of a node, in objects; 0: (KEEP+1) x what is owed now + SPARE */
#endif
#ifndef SPARE
#define SPARE 0     /* room beyond what is owed, in objects */
#endif
#ifndef NCUT
#define NCUT 0      /* pairs that cannot pull from each other, together or one after the other; for good or for a while */
#endif
#ifndef NREL
#define NREL 0      /* kept saves that the user gives up, never the newest */
#endif
#ifndef NSTG
#define NSTG 0      /* saves that a rank stages, at most: slots of which no other node knows */
#endif
#ifndef P
#define P 15        /* length of the log, at most 16 */
#endif
#ifndef WHOLE
#define WHOLE 0     /* 1: all ranks write their shard of a save in one step */
#endif
#ifndef STUCK
#define STUCK 0     /* 1: the copies of a lost node may stay where they are (nowhere to go, map not ready) */
#endif
#ifndef STALE
#define STALE 0     /* how often a late fact may make a silent or lost node "found" */
#endif
#ifndef FLIGHT
#define FLIGHT 0    /* 1: a pull begins and ends, and heads are taken meanwhile */
#endif
#ifndef LIVE
#define LIVE 1      /* 0: safety only */
#endif
/* mutants, 0 = as proposed */
#ifndef NOREACH
#define NOREACH 0   /* nobody says that a source is out of reach */
#endif
#ifndef GUESS
#define GUESS 0     /* a holder counts each other holder in its reach as a source, and says nothing */
#endif
#ifndef ANYSOURCE
#define ANYSOURCE 0 /* the coordinator counts any two holders in reach of each other as sources, as GUESS does */
#endif
#ifndef SAMEMAP
#define SAMEMAP 0   /* a forbidden pair moves copies without a new configuration */
#endif
#ifndef TELLR
#define TELLR 0     /* RELEASED told before recorded */
#endif
#ifndef RELNEW
#define RELNEW 0    /* the newest PROTECTED save can be given up */
#endif
#ifndef UNASKED
#define UNASKED 0   /* what was pulled is sealed without a look at whether it is still assigned and open */
#endif
#ifndef LATEWRITE
#define LATEWRITE 0 /* a rank that is late writes a save that its node knows to be decided */
#endif
#ifndef SERIALMEM
#define SERIALMEM 0 /* lost, map and number are the process's memory only */
#endif
#ifndef NOCFG
#define NOCFG 0     /* a promise names no configuration */
#endif
#ifndef NUMBER
#define NUMBER 0    /* a promise names the number of the configuration, not its digest */
#endif
#ifndef CONTENT
#define CONTENT 0   /* the digest covers {lost, map} alone, not what was before */
#endif
#ifndef NOHEAL
#define NOHEAL 0    /* a node below the first level stays lost */
#endif
#ifndef TELLK
#define TELLK 0     /* configuration told before recorded */
#endif
#ifndef TELLC
#define TELLC 0     /* CANCELLED told before recorded */
#endif
#ifndef TELLP
#define TELLP 0     /* PROTECTED told before recorded */
#endif
#ifndef TELLS
#define TELLS 0     /* settled told before recorded */
#endif
#ifndef FREEATCFG
#define FREEATCFG 0 /* unassigned copies freed when the configuration is told */
#endif
#ifndef FREEATDEC
#define FREEATDEC 0 /* 1: freed at any next decision, CANCELLED too; 2: at the next PROTECTED only, nothing is settled in between */
#endif
#ifndef OLDPROM
#define OLDPROM 0   /* a returned node's earlier promises count on */
#endif
#ifndef KEEPMEM
#define KEEPMEM 0   /* the keep list that came from recovery is in memory only */
#endif
#ifndef LOSTMEM
#define LOSTMEM 0   /* who is lost is the process's memory, no part of the configuration */
#endif
#ifndef FORGET
#define FORGET 0    /* a member's engine forgets which head it has taken */
#endif
#ifndef LATE
#define LATE 0      /* a member obeys a head older than its own */
#endif
#ifndef KEEPUND
#define KEEPUND 0   /* unassigned copies of an undecided save stay until it is decided */
#endif
#ifndef NOWAIT
#define NOWAIT 0    /* copies of undecided saves are pulled while the map is not settled */
#endif
#ifndef NOGEN
#define NOGEN 0     /* a save may begin where bytes are free, though keep + 1 saves are there already */
#endif
#ifndef STG
#define STG 0       /* a save is staged where bytes are free, whatever copies need */
#endif

#define GOOD (!(SERIALMEM||NOCFG||NUMBER||CONTENT||TELLK||TELLC||TELLP||TELLS||TELLR||OLDPROM||KEEPMEM||LOSTMEM||FORGET||LATE))
#define ALL ((1<<O)-1)
#define NEED (1+MINC)

/* default map: ring over the nodes 1 2 3 0 */
#if C==1
#define D0 6        /* object 0: nodes 1 2 */
#define D1 12       /* object 1: nodes 2 3 */
#define D2 3        /* object 2: nodes 0 1 */
#else
#define D0 14
#define D1 13
#define D2 7
#endif
#if O==2
#define DMAP ((D0<<4)|(D1<<8))
#else
#define DMAP ((D0<<4)|(D1<<8)|(D2<<12))
#endif
#define OWNER(j) ((j)==0 -> 1 : ((j)==1 -> 2 : 0))
#define OBJ(x)   ((x)==1 -> 0 : ((x)==2 -> 1 : 2))
#if O==2
#define ISOWN(x) ((x)==1||(x)==2)
#else
#define ISOWN(x) ((x)!=3)
#endif

/* a head, packed: lost, map of up to 3 objects, decided, keep mask, settled, id of its configuration, number */
#define EL(p)   (e[p]&15)
#define EM(p,j) ((e[p]>>(4+4*(j)))&15)
#define EMAP(p) (e[p]&65520)
#define ED(p)   ((e[p]>>16)&3)
#define EK(p)   ((e[p]>>18)&15)
#define ES(p)   ((e[p]>>22)&1)
#define EC(p)   ((e[p]>>23)&15)
#define EN(p)   ((e[p]>>27)&15)
#define PACK(l,map,d,k,s,c,n) ((l)|(map)|((d)<<16)|((k)<<18)|((s)<<22)|((c)<<23)|((n)<<27))
#define BIT(s,j) (1<<((s)*O+(j)))
#define HAS(x,s,j) ((h[x]>>((s)*O+(j)))&1)
#define IN(m,x) (((m)>>(x))&1)
#define POP4(m) (((m)&1)+(((m)>>1)&1)+(((m)>>2)&1)+(((m)>>3)&1))
#define HMASK(s) (ALL<<((s)*O))

int   e[16];
short h[4];          /* what a node holds, sealed: bit s*O+j */
byte  pos[4];        /* the head a node has taken, on its record */
byte  hd, lg, nx;    /* the coordinator's head in memory, on record; next free */
short pr[4*S];       /* promises sent: configurations */
byte  sl[S];         /* saves' objects written (DONE) */
byte  nw[4];         /* next save a node's rank writes */
byte  up, si;        /* memory not lost; silent */
byte  bc;            /* saves begun before the faults ended */
bool  calm;
bool  over;          /* the tries of the newest map are over */
byte  nsil, nloss, ncr, nmr, nstale, nrel;
#if NSTG
byte  sg[4];         /* saves that a node's rank has staged */
#define SG(x) sg[x]
#else
#define SG(x) 0
#endif
#if FLIGHT
byte  fl[4];         /* what a node is pulling: 1 + save*O + object */
#endif
#if NCUT
byte  cut, ncut;     /* pairs that cannot pull from each other, a bit each; how often there was one */
byte  said;          /* facts: those pairs, said under the newest map by a node that has a place with the other */
byte  forb;          /* the pairs that the newest head forbids */
byte  rs;            /* scratch: who has a source */
#else
#define cut  0
#define forb 0
#endif
byte  np, need;      /* ghost: newest PROTECTED; nodes that must hold each of its objects */
byte  seen;          /* ghost: really lost nodes that some life of the coordinator has noticed */
byte  q, w, j1, s1, q1, cnt, c0, c1, dir; int m;   /* scratch, reset */
bool gone;           /* the coordinator's node is lost: the epoch is over */


/* P1, P2: the newest save called PROTECTED is on enough memories, object by object */
inline chk() {
  j1=0; do :: j1<O -> cnt=0; q=0; do :: q<4 -> if :: IN(up,q) && HAS(q,np,j1) -> cnt++ :: else fi; q++ :: else -> break od;
       assert(cnt>=need); j1++ :: else -> break od; q=0; j1=0; cnt=0;
#if KEEP>1
       kept()
#endif
}
/* the same of older saves that are kept, on the record: a loss may have taken one copy of each */
inline kept() {
  s1=0; do :: s1<np -> if :: NLOSS<=1 && ((EK(lg)>>s1)&1) -> j1=0; do :: j1<O -> cnt=0; q=0; do :: q<4 -> if :: IN(up,q) && HAS(q,s1,j1) -> cnt++ :: else fi; q++ :: else -> break od;
       assert(cnt>=NEED-nloss); j1++ :: else -> break od; q=0; j1=0; cnt=0 :: else fi; s1++ :: else -> break od; s1=0 }

#define KEPT(x,s) ((EK(pos[x])>>(s))&1)
#define OPEN(x,s) ((s)>ED(pos[x]) || KEPT(x,s))
#define MINE(x,j) IN(EM(pos[x],j),x)
#define POPH(v) (POP4(v)+POP4((v)>>4)+POP4((v)>>8)+POP4((v)>>12))
/* owed to what is kept, and not here yet */
#define MK(x,s,j) (KEPT(x,s) && MINE(x,j) && !HAS(x,s,j))
#if O==2
#define OWED(x) (MINE(x,0)+MINE(x,1))
#define MKS(x,s) (MK(x,s,0)+MK(x,s,1))
#define HASMINE(x,s) ((!MINE(x,0)||HAS(x,s,0)) && (!MINE(x,1)||HAS(x,s,1)))
#else
#define OWED(x) (MINE(x,0)+MINE(x,1)+MINE(x,2))
#define MKS(x,s) (MK(x,s,0)+MK(x,s,1)+MK(x,s,2))
#define HASMINE(x,s) ((!MINE(x,0)||HAS(x,s,0)) && (!MINE(x,1)||HAS(x,s,1)) && (!MINE(x,2)||HAS(x,s,2)))
#endif
#define MISSING(x) (MKS(x,0)+MKS(x,1)+(S>2 -> MKS(x,2%S) : 0)+(S>3 -> MKS(x,3%S) : 0))
#if RM
#define CAP(x) RM
#else
#define CAP(x) ((KEEP+1)*OWED(x))
#endif
#define ROOMK(x) (USED(x)+1<=CAP(x)+(ES(pos[x]) -> 0 : SPARE)) /* for what is kept */
#define ROOMN(x) (USED(x)+1<=CAP(x))                           /* for the next save */
/* a copy of what is kept has no room here */
#define TRIED(x) (ON(x) && MISSING(x)>0 && !ROOMK(x))
/* copies of undecided saves are pulled: the map is settled, or its tries are over */
#define TURN(x) (NOWAIT || ES(pos[x]) || over)
#if FLIGHT
#define USED(x) (POPH(h[x])+SG(x)+(fl[x]!=0))
#else
#define USED(x) (POPH(h[x])+SG(x))
#endif
#define ON(x) (IN(up,x) && !IN(si,x))
/* pairs (0,1) (0,2) (0,3) (1,2) (1,3) (2,3): bits 0 to 5 */
#define PXL(x,y) ((x)==0 -> (y)-1 : (x)+(y))
#define PX(x,y) ((x)<(y) -> PXL(x,y) : PXL(y,x))
#define PIN(m,x,y) (((m)>>PX(x,y))&1)
#define FROM(x,y,s,j) (x!=y && ON(y) && HAS(y,s,j) && !PIN(cut,x,y))
#define SRC(x,s,j) (FROM(x,0,s,j)||FROM(x,1,s,j)||FROM(x,2,s,j)||FROM(x,3,s,j))

#define INK(s) ((EK(hd)>>(s))&1)
#if SERIALMEM||NOCFG||NUMBER||CONTENT||TELLK||TELLC||TELLP||TELLS||TELLR||OLDPROM||KEEPMEM||LOSTMEM||FORGET||LATE
#define PBIT(x) (1<<EC(pos[x]))
#define NOWBIT EC(hd)
#else
#define PBIT(x) 1
#define NOWBIT 0
#endif

/* x takes head p: on record, then frees what p lets go */
inline obey(x,p) {
  if :: EN(p)>=EN(pos[x]) -> pos[x]=p :: else fi;
  s1=0; do :: s1<S ->
     if :: s1<=ED(p) && !((EK(p)>>s1)&1) && (!KEEPMEM || ED(p)>0) -> h[x]=h[x]&~HMASK(s1)
        :: s1<=ED(p) && ((EK(p)>>s1)&1) && (ES(p)||FREEATCFG) ->
             j1=0; do :: j1<O -> if :: !IN(EM(p,j1),x) -> h[x]=h[x]&~BIT(s1,j1) :: else fi; j1++ :: else -> break od; j1=0
        :: s1>ED(p) && !KEEPUND ->  /* protects nothing yet: a copy of it that is no longer assigned goes at once */
             j1=0; do :: j1<O -> if :: !IN(EM(p,j1),x) && !(ISOWN(x) && OBJ(x)==j1) -> h[x]=h[x]&~BIT(s1,j1) :: else fi; j1++ :: else -> break od; j1=0
        :: else fi; s1++ :: else -> break od; s1=0;
  if :: nw[x]<=ED(p) && !LATEWRITE -> nw[x]=ED(p)+1 :: else fi;
#if NSTG
  if :: nw[x]+sg[x]>S -> sg[x]=S-nw[x] :: else fi; /* given up: no save is left for it */
#endif
  printf("node %d takes head %d: lost %d decided %d keep %d settled %d\n",x,p,EL(p),ED(p),EK(p),ES(p));
  }
inline take(x,p) { obey(x,p); chk(); promises(); gc() }


/* HTH_KIND_PROMISE goes out by itself: all of the save that is assigned here is here, and the save is complete.
   They are facts; the coordinator may look at them at any later time or never */
inline promises() {
  q=0; do :: q<4 -> if :: ON(q) && OWED(q)>0 && (!GOOD || EC(pos[q])==EC(hd)) -> s1=0; do :: s1<S ->
       if :: OPEN(q,s1) && sl[s1]==ALL && HASMINE(q,s1) &&
             (!GOOD || s1>ED(hd) || (INK(s1) && !ES(hd))) -> pr[q*S+s1]=pr[q*S+s1]|PBIT(q)
          :: else fi; s1++ :: else -> break od; s1=0 :: else fi;
       q++ :: else -> break od; q=0 }

/* fewer states: heads that nobody can take any more are shifted out */
inline gc() {
  if :: GOOD -> w=hd; q=0; do :: q<4 -> if :: IN(up,q) && pos[q]<w -> w=pos[q] :: else fi; q++ :: else -> break od;
        if :: w>0 -> q=0; do :: q<nx-w -> m=e[q+w]; cnt=(m>>23)&15; cnt=(cnt>w -> cnt-w : 0); e[q]=((m&8388607)|(cnt<<23)|(q<<27)); q++ :: else -> break od;
             do :: q<nx -> e[q]=0; q++ :: else -> break od; nx=nx-w; hd=hd-w; lg=lg-w;
             q=0; do :: q<4 -> if :: IN(up,q) -> pos[q]=pos[q]-w :: else fi; q++ :: else -> break od :: else fi; q=0; w=0; m=0; cnt=0
     :: else fi }

/* the log grows by one state: on record, then told (mutants: told, then on record). The coordinator's own node obeys at once */
inline append(l,map,d,k,s,cfg,tell) {
  assert(nx<P);
  if :: (cfg) -> over=false :: else fi;
  e[nx] = PACK(l,map,d,k,s,((cfg) -> nx : EC(hd)),(EN(hd)+1));
#if NCUT
  if :: (cfg) -> said=0 :: else fi;   /* it was said under another map */
#endif
  hd=nx; if :: !(tell) -> lg=nx :: else fi; nx++;
  if :: GOOD -> q=0; do :: q<4*S -> if :: (cfg) || q%S<=ED(hd) -> pr[q]=0 :: else fi; q++ :: else -> break od; q=0 :: else fi;
  if :: hd==lg -> obey(0,hd) :: else fi }
/* keep + 1 saves, as this node knows them, the new one included */
#define GENS(x) (NOGEN || POP4(EK(pos[x]))+nw[x]-ED(pos[x])<=KEEP+1)
/* A slot that was staged is there already. A first save is staged, or written, where its bytes are
   free; one beside it only where the node has room for all of these saves, with the copies that it
   holds */
#define HASROOM(x) (SG(x)>0 || ROOMN(x))
#if NSTG
#define UNDONE(x) (nw[x]-1-ED(pos[x])+sg[x])
#define MAYSTAGE(x) (STG || UNDONE(x)==0 || (POP4(EK(pos[x]))+UNDONE(x)+1)*OWED(x)<=CAP(x))
#define STAGE(x) \
 :: d_step { ISOWN(x) && IN(up,x) && !gone && sg[x]<NSTG && nw[x]+sg[x]<S && \
      ROOMN(x) && MAYSTAGE(x) -> sg[x]++; printf("node %d stages a save\n",x) }
#define UNSTAGE(x) if :: sg[x]>0 -> sg[x]-- :: else fi;
#define NOTSTAGED(x) sg[x]=0;
#else
#define UNSTAGE(x)
#define NOTSTAGED(x)
#endif
/* a rank writes its next save, silent or not; HTH_KIND_DONE, when all of a node's have: a fact from here on */
#define SEAL(x) \
 :: d_step { ISOWN(x) && IN(up,x) && !gone && nw[x]<S && GENS(x) && HASROOM(x) -> UNSTAGE(x) \
       s1=nw[x]; h[x]=h[x]|BIT(s1,OBJ(x)); sl[s1]=sl[s1]|(1<<OBJ(x)); nw[x]=s1+1; \
       if :: !calm -> bc=bc|(1<<s1) :: else fi; printf("node %d writes its shard of save %d\n",x,s1); s1=0; promises() }
/* WHOLE: all ranks write at once (fewer states) */
#define MYW(x) (!ISOWN(x) || (IN(up,x) && nw[x]==nw[1] && GENS(x) && HASROOM(x)))
#define SEALALL \
 :: d_step { !gone && nw[1]<S && MYW(0) && MYW(1) && MYW(2) -> s1=nw[1]; q1=0; \
       do :: q1<3 -> if :: ISOWN(q1) -> UNSTAGE(q1) h[q1]=h[q1]|BIT(s1,OBJ(q1)); nw[q1]=s1+1 \
                        :: else fi; q1++ \
          :: else -> break od; q1=0; sl[s1]=ALL; \
       if :: !calm -> bc=bc|(1<<s1) :: else fi; printf("all ranks write save %d\n",s1); s1=0; promises() }
/* a holder pulls, verifies, seals: HTH_MSG_OFFER, and what answers it */
#define MAYPULL(x,s,j) (ON(x) && !gone && MINE(x,j) && OPEN(x,s) && !HAS(x,s,j) && \
      (KEPT(x,s) -> ROOMK(x) : (ROOMN(x) && TURN(x))) && SRC(x,s,j))
#if FLIGHT
#define PULL(x,s,j) \
 :: d_step { fl[x]==0 && MAYPULL(x,s,j) -> fl[x]=1+(s)*O+(j); \
      printf("node %d begins to pull object %d of save %d\n",x,j,s) }
#define PULLED(x) \
 :: d_step { ON(x) && !gone && fl[x]!=0 -> s1=(fl[x]-1)/O; j1=(fl[x]-1)%O; fl[x]=0; \
      if :: UNASKED || (MINE(x,j1) && OPEN(x,s1)) -> h[x]=h[x]|BIT(s1,j1); printf("node %d holds object %d of save %d\n",x,j1,s1) :: else fi; s1=0; j1=0; promises() }
#else
#define PULL(x,s,j) \
 :: d_step { MAYPULL(x,s,j) -> h[x]=h[x]|BIT(s,j); \
      printf("node %d holds object %d of save %d\n",x,j,s); promises() }
#endif
/* what is kept is tried a bounded number of times under each map; then saving goes on */
#define OVER \
 :: d_step { !NOWAIT && !over && !gone && !ES(hd) && (TRIED(0)||TRIED(1)||TRIED(2)||TRIED(3)) -> \
      over=true; printf("the tries of this map are over\n") }
/* any head ever told that is not older than one's own (LATE: any) */
#define TAKE(x) \
 :: atomic { ON(x) && !gone && pos[x]!=nx-1 && (LATE || FORGET || SERIALMEM || TELLK || TELLC || TELLP || TELLS || TELLR || KEEPMEM || LOSTMEM || pos[x]<nx-1) -> \
      q1=(GOOD -> pos[x]+1 : 0); do :: q1<nx-1 -> q1++ :: break od; \
      d_step { if :: q1!=pos[x] && (LATE || EN(q1)>=EN(pos[x])) -> take(x,q1) :: else fi; q1=0 } }

/* ---- the coordinator ---- */
#if NOCFG
#define MATCH(x,s) (pr[(x)*S+(s)]!=0)
#elif NUMBER || SERIALMEM || CONTENT
#if CONTENT
#define SAME(w) ((e[w]&65535)==(e[EC(hd)]&65535))
#else
#define SAME(w) (EN(w)==EN(EC(hd)))
#endif
#define MT(v,w) ((((v)>>w)&1) && SAME(w))
#define MATCHV(v) (MT(v,0)||MT(v,1)||MT(v,2)||MT(v,3)||MT(v,4)||MT(v,5)||MT(v,6)||MT(v,7)||MT(v,8)||MT(v,9)||MT(v,10)||MT(v,11)||MT(v,12)||MT(v,13)||MT(v,14))
#define MATCH(x,s) MATCHV(pr[(x)*S+(s)])
#else
#define MATCH(x,s) ((pr[(x)*S+(s)]>>NOWBIT)&1)
#endif
#define COUNTS(x,s,j) (IN(EM(hd,j),x) && !IN(EL(hd),x) && MATCH(x,s))
#define PC(s,j) (COUNTS(0,s,j)+COUNTS(1,s,j)+COUNTS(2,s,j)+COUNTS(3,s,j))
#if O==2
#define ENOUGH(s) (PC(s,0)>=NEED && PC(s,1)>=NEED)
#define FULL(s) (ENOUGH(s) && PC(s,0)==POP4(EM(hd,0)) && PC(s,1)==POP4(EM(hd,1)))
#else
#define ENOUGH(s) (PC(s,0)>=NEED && PC(s,1)>=NEED && PC(s,2)>=NEED)
#define FULL(s) (ENOUGH(s) && PC(s,0)==POP4(EM(hd,0)) && PC(s,1)==POP4(EM(hd,1)) && PC(s,2)==POP4(EM(hd,2)))
#endif
#if S==4
#define KFULL ((!INK(0)||FULL(0)) && (!INK(1)||FULL(1)) && (!INK(2)||FULL(2)) && (!INK(3)||FULL(3)))
#elif S==3
#define KFULL ((!INK(0)||FULL(0)) && (!INK(1)||FULL(1)) && (!INK(2)||FULL(2)))
#else
#define KFULL ((!INK(0)||FULL(0)) && (!INK(1)||FULL(1)))
#endif
#define CAN (!gone && hd==lg && (GOOD || nx<P))

/* The word is HTH_KIND_HEAD: the map moved, PROTECTED, CANCELLED (asked for by HTH_KIND_FAILED, or at the deadline),
   settled; it carries the whole state. A save that is given up is HTH_KIND_RELEASED.
   The facts: HTH_KIND_ALIVE (life is a node's), HTH_KIND_UNREACHABLE
   (reach is a pair's, and makes the coordinator look
   whether the node lives). */
/* P3: what is counted exists, or was lost without anybody's knowledge; need := how many that are */
inline truth(s) {
  need=NEED; j1=0; do :: j1<O -> cnt=0; q=0; do :: q<4 ->
       if :: COUNTS(q,s,j1) -> assert(!IN(seen,q)); if :: IN(up,q) -> assert(HAS(q,s,j1)); cnt++ :: else fi :: else fi; q++ :: else -> break od;
       if :: cnt<need -> need=cnt :: else fi; assert(cnt>0); j1++ :: else -> break od; q=0; j1=0; cnt=0 }

/* the KEEP newest of k and s */
inline keeps(s,k) {
#if KEEP==1
  c0 = 1<<(s);
#else
  c0=0; q=s; do :: q>0 && c0==0 -> q--; if :: ((k)>>q)&1 -> c0=1<<q :: else fi :: else -> break od; q=0; c0=c0|(1<<(s));
#endif
}
#define PROTECT(s) \
 :: d_step { CAN && (s)>ED(hd) && sl[s]==ALL && ENOUGH(s) -> truth(s); np=s; keeps(s,EK(hd)); \
      c1=(FULL(s) && (KEEP==1 || ES(hd) || KFULL)); append(EL(hd),EMAP(hd),s,c0,c1,false,TELLP); \
      printf("save %d PROTECTED, head %d, settled %d\n",s,nx-1,c1); c0=0; c1=0; chk(); promises(); gc() }
#define OWNERLOST (!IN(up,1)||!IN(up,2)||(O>2&&!IN(up,0)))
#define CANCEL(s) \
 :: d_step { CAN && (s)==ED(hd)+1 && (((bc>>(s))&1)||OWNERLOST) && sl[s]!=0 -> c1=(ES(hd)||FREEATDEC==1); \
      append(EL(hd),EMAP(hd),s,EK(hd),c1,false,TELLC); c1=0; printf("save %d CANCELLED, head %d\n",s,nx-1); chk(); promises(); gc() }
/* every assigned holder has promised what is kept, under this very configuration: the rest may go */
#define SETTLE \
 :: d_step { CAN && FREEATDEC!=2 && !ES(hd) && EK(hd)!=0 && KFULL -> truth(np); append(EL(hd),EMAP(hd),ED(hd),EK(hd),1,false,TELLS); printf("settled, head %d\n",nx-1); chk(); promises(); gc() }

/* rs: who of c0 has a source by the head: its owner (who is lost: the first), and who can pull from one that has it */
#define LINKS(x,y) (IN(rs,x) && (x)!=(y) && !PIN(forb,x,y))
#define ROOT(j) (IN(c0,OWNER(j)) -> (1<<OWNER(j)) : (c0&-c0))
inline sourced(j) {
  rs=ROOT(j);
#if ANYSOURCE
  rs=c0;
  q=0; do :: q<4 -> if :: IN(c0,q) && !((1<<q)&ROOT(j)) && !LINKS(0,q) && !LINKS(1,q) && !LINKS(2,q) && !LINKS(3,q) -> rs=rs&~(1<<q) :: else fi; q++ :: else -> break od;
#else
  w=0; do :: w<C -> q=0; do :: q<4 -> if :: IN(c0,q) && (LINKS(0,q)||LINKS(1,q)||LINKS(2,q)||LINKS(3,q)) -> rs=rs|(1<<q) :: else fi; q++ :: else -> break od; w++ :: else -> break od;
#endif
  q=0; w=0 }
/* c0: map of one object without x, filled up from those that are not in l, and that have a source, if there are; dir 0
   lowest first, 1 highest first */
inline fill(j,l) {
#if NCUT
  if :: forb!=0 && c0!=0 -> sourced(j); q=0; do :: q<4 && POP4(c0)<1+C -> w=(dir==0 -> q : 3-q); if :: !IN(c0,w) && !IN(l,w) && (LINKS(0,w)||LINKS(1,w)||LINKS(2,w)||LINKS(3,w)) -> c0=c0|(1<<w); rs=rs|(1<<w) :: else fi; q++ :: else -> break od; q=0; w=0; rs=0 :: else fi;
#endif
  q=0; do :: q<4 && POP4(c0)<1+C -> w=(dir==0 -> q : 3-q); if :: !IN(c0,w) && !IN(l,w) -> c0=c0|(1<<w) :: else fi; q++ :: else -> break od; q=0; w=0 }
/* the object's places with a source stay, the others move */
inline part(j,l) {
#if NCUT
  if :: forb!=0 -> sourced(j); c0=c0&rs; rs=0; fill(j,l) :: else fi
#endif
  skip }
inline moved(x,l) {
  m=0; j1=0; do :: j1<O -> c0=EM(hd,j1);
     if :: dir!=2 && IN(c0,x) -> c0=c0&~(1<<(x)); fill(j1,l); part(j1,l) :: else fi;
     m=m|(c0<<(4+4*j1)); j1++ :: else -> break od; j1=0; c0=0 }
inline given(x,l) {
  m=0; j1=0; do :: j1<O -> c0=EM(hd,j1); c1=((DMAP>>(4+4*j1))&15);
     if :: dir==1 && IN(c1,x) && (c1&(l))==0 && forb==0 -> c0=c1                       /* back as it was */
        :: else -> if :: OWNER(j1)==x && !IN(c0,x) -> c0=c0|(1<<(x));        /* the owner always, somebody else goes */
                         q=0; do :: q<4 && POP4(c0)>1+C -> if :: q!=x && IN(c0,q) -> c0=c0&~(1<<q) :: else fi; q++ :: else -> break od; q=0
                      :: else fi;
                      fill(j1,l); part(j1,l) fi;
     m=m|(c0<<(4+4*j1)); j1++ :: else -> break od; j1=0; c0=0; c1=0 }
#define NEWCFG (!LOSTMEM || m!=EMAP(hd))
#define LOST(x) \
 :: atomic { CAN && !IN(EL(hd),x) && !ON(x) -> if :: dir=0 :: dir=1 :: STUCK -> dir=2 fi; \
      d_step { moved(x,(EL(hd)|(1<<(x)))); if :: !IN(up,x) -> seen=seen|(1<<(x)) :: else fi; \
      c1=NEWCFG; append((EL(hd)|(1<<(x))),m,ED(hd),EK(hd),(c1 -> 0 : ES(hd)),c1,TELLK); c1=0; m=0; dir=0; printf("node %d is noted as lost: head %d map %d %d\n",x,nx-1,EM(hd,0),EM(hd,1)); chk(); promises(); gc() } }
#define MOVE(x) \
 :: atomic { STUCK && CAN && IN(EL(hd),x) && (IN(EM(hd,0),x)||IN(EM(hd,1),x)||(O>2&&IN(EM(hd,2%O),x))) -> if :: dir=0 :: dir=1 fi; \
      d_step { moved(x,EL(hd)); append(EL(hd),m,ED(hd),EK(hd),0,true,TELLK); m=0; dir=0; printf("copies of node %d move: head %d map %d %d\n",x,nx-1,EM(hd,0),EM(hd,1)); chk(); promises(); gc() } }
#define FOUND(x) \
 :: atomic { CAN && IN(EL(hd),x) && (ON(x) || nstale<STALE) && !(NOHEAL && x==3) -> if :: !ON(x) -> nstale++ :: else fi; if :: dir=0 :: dir=1 fi; \
      d_step { given(x,(EL(hd)&~(1<<(x)))); \
      c1=NEWCFG; append((EL(hd)&~(1<<(x))),m,ED(hd),EK(hd),(c1 -> 0 : ES(hd)),c1,TELLK); \
      if :: OLDPROM -> s1=0; do :: s1<S -> if :: pr[(x)*S+s1]!=0 -> pr[(x)*S+s1]=pr[(x)*S+s1]|(1<<EC(hd)) :: else fi; s1++ :: else -> break od; s1=0 :: else fi; \
      c1=0; m=0; dir=0; printf("node %d is found: head %d map %d %d\n",x,nx-1,EM(hd,0),EM(hd,1)); chk(); promises(); gc() } }
#if NCUT
/* x and y have places of one object by x's map */
#define WITH(x,y) ((MINE(x,0)&&MINE2(x,y,0))||(MINE(x,1)&&MINE2(x,y,1))||(O>2&&MINE(x,2%O)&&MINE2(x,y,2%O)))
#define MINE2(x,y,j) IN(EM(pos[x],j),y)
/* the rule before: x lacks an object, and all who have a place of it are out of its reach */
#define NEAR(x,y,j) (x!=y && MINE2(x,y,j) && ON(y) && !PIN(cut,x,y))
#define LACKS(x,s,j) (MINE(x,j) && OPEN(x,s) && !HAS(x,s,j) && !NEAR(x,0,j) && !NEAR(x,1,j) && !NEAR(x,2,j) && !NEAR(x,3,j))
#define STARVED(x) (LACKS(x,0,0)||LACKS(x,0,1)||LACKS(x,1,0)||LACKS(x,1,1)||(S>2&&(LACKS(x,2%S,0)||LACKS(x,2%S,1)))||(O>2&&(LACKS(x,0,2%O)||LACKS(x,1,2%O)||(S>2&&LACKS(x,2%S,2%O)))))
#define CUT(x,y) :: d_step { ncut<NCUT && !PIN(cut,x,y) && !calm && !gone -> ncut++; cut=cut|(1<<PX(x,y)); printf("nodes %d and %d cannot pull from each other\n",x,y) }
#define SAYS(x,y) :: d_step { !NOREACH && PIN(cut,x,y) && !PIN(said,x,y) && !PIN(forb,x,y) && !gone && ON(x) && EC(pos[x])==EC(hd) && WITH(x,y) && (!GUESS || STARVED(x)) -> said=said|(1<<PX(x,y)); printf("node %d cannot pull from node %d\n",x,y) }
#define SAYSALL(x) SAYS(x,((x)==0 -> 1 : 0)) SAYS(x,((x)<=1 -> 2 : 1)) SAYS(x,((x)<=2 -> 3 : 2))
inline parted() {
  m=0; j1=0; do :: j1<O -> c0=EM(hd,j1); part(j1,EL(hd)); m=m|(c0<<(4+4*j1)); j1++ :: else -> break od; j1=0; c0=0 }
/* the map forbids what was said, all of it or some */
#define FORBID \
 :: atomic { CAN && said!=0 -> if :: dir=0 :: dir=1 fi; \
      d_step { forb=forb|said; said=0; parted(); if :: m!=EMAP(hd) -> c1=1-SAMEMAP; append(EL(hd),m,ED(hd),EK(hd),(c1 -> 0 : ES(hd)),c1,false) :: else fi; c1=0; m=0; dir=0; \
      printf("the pairs %d are forbidden: head %d map %d %d\n",forb,hd,EM(hd,0),EM(hd,1)); chk(); promises(); gc() } }
#define HEALS(b) :: d_step { ((cut>>b)&1) && !gone && !calm -> cut=cut&~(1<<b); said=said&cut; printf("the pair %d can again\n",b) }
#define HEAL \
 HEALS(0) HEALS(1) HEALS(2) HEALS(3) HEALS(4) HEALS(5) \
 :: d_step { CAN && (forb&~cut)!=0 && !calm -> forb=forb&cut; said=said&cut; printf("pairs are allowed again\n") }
#endif
/* the user gives up a save that is kept, not the newest: from the next head on it is not on the list */
#define RELEASE(s) \
 :: d_step { nrel<NREL && CAN && INK(s) && (RELNEW || (s)!=np) -> nrel++; append(EL(hd),EMAP(hd),ED(hd),(EK(hd)&~(1<<(s))),ES(hd),false,TELLR); printf("save %d is RELEASED, head %d\n",s,nx-1); chk(); promises(); gc() }
#define RECORD :: d_step { !gone && hd!=lg -> lg=hd; obey(0,hd); chk(); promises() }
/* the coordinator's engine starts again: what is on record, and facts. Without a mutant that changes nothing */
#define RESTART \
 :: d_step { ncr<NCR && !gone && !calm && nx<P && (hd!=lg || SERIALMEM || KEEPMEM || LOSTMEM) -> ncr++; hd=lg; printf("the coordinator's engine starts again\n"); \
      if :: SERIALMEM -> assert(nx<P); e[nx]=PACK(0,DMAP,ED(hd),EK(hd),0,nx,0); hd=nx; lg=nx; nx++ \
         :: LOSTMEM -> assert(nx<P); e[nx]=PACK(0,EMAP(hd),ED(hd),EK(hd),ES(hd),EC(hd),(EN(hd)+1)); hd=nx; lg=nx; nx++ \
         :: KEEPMEM && np==0 -> assert(nx<P); e[nx]=PACK(EL(hd),EMAP(hd),ED(hd),0,0,EC(hd),(EN(hd)+1)); hd=nx; lg=nx; nx++ \
         :: else fi; pos[0]=hd; promises() }

/* ---- faults ---- */
#define SILENT(x) \
 :: d_step { nsil<NSIL && !calm && !gone && ON(x) -> nsil++; si=si|(1<<(x)); printf("node %d falls silent\n",x) } \
 :: d_step { IN(si,x) && !gone -> si=si&~(1<<(x)); printf("node %d is back\n",x); promises() }
#define MEMBER(x) \
 :: d_step { FORGET && nmr<NMR && !calm && !gone && IN(up,x) && pos[x]!=0 -> nmr++; pos[x]=0; printf("the engine of node %d starts again\n",x) }
#if FLIGHT
#define NOFLIGHT(x) fl[x]=0;
#else
#define NOFLIGHT(x)
#endif
#define LOSS(x) \
 :: d_step { nloss<NLOSS && !calm && !gone && IN(up,x) && need>=2 -> printf("node %d LOST for good\n",x); nloss++; up=up&~(1<<(x)); si=si&~(1<<(x)); h[x]=0; pos[x]=0; nw[x]=S; need--; NOFLIGHT(x) \
      NOTSTAGED(x) \
      chk(); if :: x==0 -> gone=true :: else fi; gc() }

init {
  d_step {
    e[0]=PACK(0,DMAP,0,1,1,0,0); nx=1; up=15; need=NEED; sl[0]=ALL;
    q=0; do :: q<4 -> nw[q]=1; j1=0; do :: j1<O -> if :: IN(EM(0,j1),q) -> h[q]=h[q]|BIT(0,j1) :: else fi; j1++ :: else -> break od; q++ :: else -> break od; q=0; j1=0 }
  do
#if WHOLE
  SEALALL
#else
  SEAL(1) SEAL(2)
#if O>2
  SEAL(0)
#endif
#endif
#if NSTG
  STAGE(1) STAGE(2)
#if O>2
  STAGE(0)
#endif
#endif
#define PULLS(s,j) PULL(0,s,j) PULL(1,s,j) PULL(2,s,j) PULL(3,s,j)
  PULLS(0,0) PULLS(0,1) PULLS(1,0) PULLS(1,1)
#if O>2
  PULLS(0,2) PULLS(1,2)
#endif
  PROTECT(1) CANCEL(1)
#if S>2
  PULLS(2,0) PULLS(2,1)
#if O>2
  PULLS(2,2)
#endif
  PROTECT(2) CANCEL(2)
#endif
#if S>3
  PULLS(3,0) PULLS(3,1)
#if O>2
  PULLS(3,2)
#endif
  PROTECT(3) CANCEL(3)
#endif
  SETTLE OVER TAKE(0) TAKE(1) TAKE(2) TAKE(3)
  LOST(1) LOST(2) LOST(3) FOUND(1) FOUND(2) FOUND(3)
#if STUCK
  MOVE(1) MOVE(2) MOVE(3)
#endif
#if FLIGHT
  PULLED(0) PULLED(1) PULLED(2) PULLED(3)
#endif
#if NREL
  RELEASE(0) RELEASE(1)
#endif
#if NCUT
  SAYSALL(0) SAYSALL(1) SAYSALL(2) SAYSALL(3) FORBID HEAL
  CUT(0,1) CUT(0,2) CUT(0,3) CUT(1,2) CUT(1,3) CUT(2,3)
#endif
  RECORD RESTART
  SILENT(1) SILENT(2) SILENT(3) MEMBER(1) MEMBER(2) MEMBER(3) MEMBER(0)
  LOSS(0) LOSS(1) LOSS(2) LOSS(3)
#if LIVE
  :: d_step { !calm && !gone -> calm=true; si=0; promises(); printf("from here on no fault\n") }
#endif
  :: else -> break
  od;
  /* L: nothing more can happen */
  if :: LIVE && !gone ->
        printf("END: lost %d decided %d keep %d settled %d, newest PROTECTED %d\n",EL(hd),ED(hd),EK(hd),ES(hd),np);
        assert(hd==lg && EL(hd)==(15&~up));
        assert(OWNERLOST || ((bc>>(S-1))&1) || np==S-1);
        assert(ES(hd));
        d_step { q=0; do :: q<4 -> c0=0; if :: IN(up,q) -> j1=0; do :: j1<O -> s1=0; do :: s1<S -> if :: INK(s1) && IN(EM(hd,j1),q) -> assert(HAS(q,s1,j1)) :: else -> assert(!HAS(q,s1,j1)) fi; s1++ :: else -> break od; j1++ :: else -> break od; :: else fi; q++ :: else -> break od; q=0; j1=0; s1=0 }
     :: else fi
}
