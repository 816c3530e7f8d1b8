/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hearth commit, retention, recovery: an abstract model for SPIN.
 *
 * 3 ranks on 3 of 4 machines (the fourth is a spare, or a stale machine that was
 * replaced and is still running). Rank q's shard has its copy on the machine of rank q+1.
 * Save = (epoch e, step s). Messages are facts that, once sent, can be delivered at any
 * later time, any number of times, or never: delay, loss, duplication and reordering.
 *
 * A step may have parts (PARTS=2): the saves 2k-1 and 2k of an epoch are the parts of one step,
 * each written and PROTECTED by itself; in what is freed, kept, cancelled, counted as room and chosen they are one.
 *
 * Comments name the messages of the code that an event stands for; README.md has the list.
 *
 * Switches (compile with -D): bounds E, S, KEEP, SLOTS, NLOSS, PARTS; the rules FENCE, CONFIRM,
 * IDENT, VERIFY, DURABLE, CANCEL, LEASE, PLANKEEP (1 = as proposed); mutants DROPPY, EARLY,
 * REBOOT, TAKEOVER, NOREPAIR, PARTFREE, PARTANY, PARTROOM, PARTCANCEL, STEPFIRST (not refuted
 * within the bounds tried: argued, not run).
 */
#ifndef E
#define E 2
#endif
#ifndef S
#define S 2
#endif
#ifndef KEEP
#define KEEP 1
#endif
#ifndef SLOTS
#define SLOTS (KEEP+1)
#endif
#ifndef NLOSS
#define NLOSS 1
#endif
#ifndef REPL
#define REPL 1      /* how often a living machine may be replaced (counts as a loss) */
#endif
#ifndef FENCE
#define FENCE 1     /* a machine that joined epoch e drops every message of an older session */
#endif
#ifndef CONFIRM
#define CONFIRM 1   /* PROTECTED from promises (manifest + own + copies), not from copy acks */
#endif
#ifndef IDENT
#define IDENT 1     /* files are named by (epoch, step); 0: by step alone */
#endif
#ifndef VERIFY
#define VERIFY 1
#endif
#ifndef CANCEL
#define CANCEL 1    /* the coordinator can end a save as CANCELLED */
#endif
#ifndef DURABLE
#define DURABLE 1   /* decision is in the coordinator's tmpfs before anybody hears of it */
#endif
#ifndef PLANKEEP
#define PLANKEEP 1  /* 1: the plan keeps [watermark..chosen]; 2: everything (nothing freed); 0: chosen only */
#endif
#ifndef DROPPY
#define DROPPY 0    /* begin without room drops the unprotected save by itself */
#endif
#ifndef EARLY
#define EARLY 0     /* older freed at COMPLETE */
#endif
#ifndef REBOOT
#define REBOOT 0    /* machine reboots and is taken for the same member of the same epoch */
#endif
#ifndef LEASE
#define LEASE 1     /* a promise counts only while its session lives: nobody who promised has moved on to a newer epoch */
#endif
#ifndef TAKEOVER
#define TAKEOVER 0  /* rank 1 may act as a second coordinator inside the epoch */
#endif
#ifndef RESTARTC
#define RESTARTC 1  /* coordinator process may restart inside the epoch, memory kept */
#endif
#ifndef NOREPAIR
#define NOREPAIR 0  /* recovery does not bring the lost copies back */
#endif

#ifndef PRE
#define PRE 0       /* start after the first save is PROTECTED */
#endif
#ifndef STEPFIRST
#define STEPFIRST 0 /* mutant: newest means the highest step, not the newest epoch */
#endif
#ifndef SKIPS
#define SKIPS 0     /* how often one rank's begin may fail, alone */
#endif
#ifndef PARTS
#define PARTS 1     /* parts of a step: 1 or 2; S counts them all */
#endif
#ifndef PARTFREE
#define PARTFREE 0  /* mutant: one part PROTECTED frees older steps */
#endif
#ifndef PARTANY
#define PARTANY 0   /* mutant: recovery chooses a step of which one part is whole */
#endif
#ifndef PARTROOM
#define PARTROOM 0  /* mutant: each part counts as a save where room is counted */
#endif
#ifndef PARTCANCEL
#define PARTCANCEL 0 /* mutant: CANCELLED is of the part alone, what there is of its step stays */
#endif
#define NF   (E*S)
#define F(e,s)   (((e)-1)*S+(s)-1)
#if IDENT
#define B(e,s)   (1<<F(e,s))
#else
#define B(e,s)   (1<<((s)-1))
#endif
#define FB(e,s)  (1<<F(e,s))
#if PARTS==2
#define STEP(f)  (3<<((f)&~1))           /* all parts of the step of save f */
#define LASTS(m) ((m)&((m)<<1)&2730)     /* steps of which m has all parts, by their last one */
#define SAVES(m) (PARTROOM -> POP(m) : POP(((m)|((m)>>1))&1365))
#else
#define STEP(f)  (1<<(f))
#define LASTS(m) (m)
#define SAVES(m) POP(m)
#endif
#define LAST(f)  ((f)-((f)%PARTS)+PARTS)  /* 1 + the last part of the step of save f */
#define LOWER(f) ((1<<((f)-((f)%PARTS)))-1) /* older steps */
#if IDENT && !PARTROOM
#define BS(e,s)  STEP(F(e,s))            /* what may be here already for (e,s) to need no more room */
#else
#define BS(e,s)  B(e,s)
#endif

/* what CANCELLED of (e,s) gives up */
#if PARTS==2 && !PARTCANCEL
#define GIVENUP(e,s) STEP(F(e,s))
#define GONEB(e,s)   STEP(F(e,s))
#define FORGETP(x,e,s) kp[x]=kp[x]&~STEP(F(e,s))
#else
#define GIVENUP(e,s) FB(e,s)
#define GONEB(e,s)   B(e,s)
#define FORGETP(x,e,s)
#endif

short h[12];        /* h[x*3+j]: saves of which machine x holds shard j, sealed */
short man[4];       /* manifests on x */
short bad[4];       /* VERIFY=0: copies on x that hold wrong bytes */
byte  nep[4];       /* newest epoch x has joined; in tmpfs */
byte  wmi[4];       /* 1 + newest save x knows PROTECTED; in tmpfs */
short kp[4];        /* saves x knows PROTECTED and keeps */
short tomb[4];      /* saves x knows CANCELLED (this epoch) */
byte  nxt[4];       /* next step its rank will save */
bool  up[4], lost[4], rn[4];
byte  mem[(E+1)*3]; /* member machine of (epoch, rank) */
byte  sl[NF], ak[NF], mw[NF]; /* facts: sealed, acked or confirmed, manifest written: rank masks */
short dP, dC;       /* facts: outcome messages sent */
short cd;           /* what the coordinator remembers to have decided */
byte  ep, ph;       /* current epoch; 0 joining 1 pulling 2 running */
byte  chosen;       /* 1 + save resumed from, 0 none */
short rt;           /* the plan's keep list */
byte  done, rk; bool rdone;
byte  np;           /* ghost: 1 + newest save ever reported PROTECTED */
byte  nskip, nloss, nrepl, nboot, ncr; bool outst;   /* ghost: fault budgets, a loss not yet repaired */
#if !IDENT
byte  tg[36]; byte mt[12];   /* ghost: epoch of the bytes under a name */
#endif
#if KEEP==2
short ret[NF];      /* keep list in the PROTECTED message */
#endif

#define OCC(x)  (h[(x)*3]|h[(x)*3+1]|h[(x)*3+2]|man[x])
#define POP(m)  (((m)&1)+(((m)>>1)&1)+(((m)>>2)&1)+(((m)>>3)&1)+(((m)>>4)&1)+(((m)>>5)&1)+(((m)>>6)&1)+(((m)>>7)&1)+(((m)>>8)&1))
#define ROOM(x) (SAVES(OCC(x)) < SLOTS)
#define HASROOM(x,e,s) (ROOM(x) || (OCC(x)&BS(e,s)))
#define H(x,j,b) ((h[(x)*3+(j)] & (b))==(b))
#define MEM(e,q) mem[(e)*3+(q)]
#define PE(x,e)  ((MEM(e,0)==x) -> 0 : ((MEM(e,1)==x) -> 1 : ((MEM(e,2)==x) -> 2 : 9)))
#define ISM(x,e) (MEM(e,0)==(x) || MEM(e,1)==(x) || MEM(e,2)==(x))
#if FENCE
#define SES(x,e) (nep[x]==(e) && rn[x])
#define TALK(x,y,e) (up[y] && nep[y]==(e))
#else
#define SES(x,e) (nep[x]>=(e) && ISM(x,e) && (rn[x] || nep[x]>(e)))
#define TALK(x,y,e) (up[y] && nep[y]>=(e))
#endif
#define DEAD(x,e,s) (wmi[x] > F(e,s) || (tomb[x] & FB(e,s)))
#define A0 MEM(ep,0)
#define A1 MEM(ep,1)
#define A2 MEM(ep,2)
#define ANY(j)      (h[A0*3+(j)]|h[A1*3+(j)]|h[A2*3+(j)])
#define REC         ((man[A0]|man[A1]|man[A2]) & ANY(0) & ANY(1) & ANY(2))
#define FULL(q,b)   (H(MEM(ep,q),q,b) && H(MEM(ep,q),(q+2)%3,b) && (man[MEM(ep,q)]&(b))==(b))
#define GE(m,n)     (((m) >> ((n)-1)) != 0)          /* m has a save >= n (1-based) */

bool hl;            /* scratch, always reset */
byte i1, q1, p1;
short m1;

inline healthy() {
  hl = (ph==2 && up[A0] && up[A1] && up[A2] && nep[A0]==ep && nep[A1]==ep && nep[A2]==ep);
  /* the newest reported save itself is whole again (a newer one that may still be cancelled does not count) */
  if :: hl && np>0 -> hl = (FULL(0,STEP(np-1)) && FULL(1,STEP(np-1)) && FULL(2,STEP(np-1))) :: else fi
}
inline clr(x,m) { h[x*3]=h[x*3]&~(m); h[x*3+1]=h[x*3+1]&~(m); h[x*3+2]=h[x*3+2]&~(m); man[x]=man[x]&~(m); bad[x]=bad[x]&~(m); }
inline wipe(x) { h[x*3]=0; h[x*3+1]=0; h[x*3+2]=0; man[x]=0; bad[x]=0; nep[x]=0; wmi[x]=0; kp[x]=0; tomb[x]=0; nxt[x]=0; rn[x]=false; }
/* keep the KEEP newest of kp[x] and bit f */
inline top(m) { /* m1 := highest bit of m (as mask), 0 if none */
  m1 = 0; i1 = NF; do :: i1>0 && m1==0 -> i1--; m1 = (m) & (1<<i1) :: else -> break od; i1=0 }

inline seal(x,e,s) {
  q1 = PE(x,e); h[x*3+q1] = h[x*3+q1] | B(e,s); sl[F(e,s)] = sl[F(e,s)] | (1<<q1);
#if !IDENT
  tg[x*9+q1*3+s-1] = e;
#endif
  nxt[x] = s+1; q1=0; printf("machine %d seals its shard of (%d,%d)\n",x,e,s) }

#if DROPPY
#define NOROOM_OK(x,e,s) true
#define MAKE_ROOM(x,e,s) if :: !ROOM(x) -> printf("machine %d: no room, drops what is not protected\n",x); m1 = OCC(x) & ~kp[x]; clr(x,m1); m1=0 :: else fi
#else
#define NOROOM_OK(x,e,s) HASROOM(x,e,s)
#define MAKE_ROOM(x,e,s) skip
#endif

#if CONFIRM
/* the promise: manifest, own shards and every copy assigned here are sealed; sent as soon as that is so */
#define PROMISE(x,e,s) if :: (man[x]&B(e,s)) && H(x,PE(x,e),B(e,s)) && H(x,(PE(x,e)+2)%3,B(e,s)) -> ak[F(e,s)]=ak[F(e,s)]|(1<<PE(x,e)) :: else fi;
#define ACKCOPY(x,e,s) PROMISE(x,e,s)
#else
#define PROMISE(x,e,s)
#define ACKCOPY(x,e,s) ak[F(e,s)] = ak[F(e,s)] | (1<<q1);
#endif
#if IDENT
#define TAGCOPY(x,e,s)
#define TAGMAN(x,e,s)
#define HAVE_NAME false
#define TAGNEQ false
#else
#define TAGCOPY(x,e,s) tg[x*9+p1*3+s-1] = tg[MEM(e,p1)*9+p1*3+s-1];
#define TAGMAN(x,e,s) mt[x*3+s-1] = e;
#define HAVE_NAME (H(x,(PE(x,e)+2)%3,B(e,s)) && (ak[F(e,s)]&(1<<PE(x,e)))==0 && (sl[F(e,s)]&(1<<((PE(x,e)+2)%3))))
#endif
#if VERIFY
#define FLIP(x,e,s)
#else
#define FLIP(x,e,s) if :: true :: bad[x]=bad[x]|B(e,s) fi;
#endif

#define COPYFROM(x,e) MEM(e,(PE(x,e)+2)%3)
#if LEASE
#define LIVE1(e,q) (!up[MEM(e,q)] || nep[MEM(e,q)]==(e))
#define LIVE(e) (LIVE1(e,0) && LIVE1(e,1) && LIVE1(e,2))
#else
#define LIVE(e) true
#endif
#define ISCO(x,e) (MEM(e,0)==x || (TAKEOVER && MEM(e,1)==x))

/* The events of a save, in order: a rank writes (HTH_KIND_DONE when all of a node's have), cannot begin
 * (HTH_KIND_FAILED), skips what is decided; a holder pulls a copy (HTH_MSG_OFFER); the manifest comes down
 * (HTH_MSG_BLOB), is there (HTH_KIND_HELD; HTH_KIND_COMPLETE frees in the mutant EARLY alone) and the promise goes up
 * (HTH_KIND_PROMISE); the coordinator decides; PROTECTED and CANCELLED are heard (HTH_KIND_HEAD). */
#define ACT(e,s) \
:: atomic { up[x] && rn[x] && nep[x]==e && nxt[x]==s && !DEAD(x,e,s) && NOROOM_OK(x,e,s) -> d_step { MAKE_ROOM(x,e,s); seal(x,e,s) } } \
:: atomic { SKIPS>nskip && up[x] && rn[x] && nep[x]==e && nxt[x]==s -> d_step { printf("machine %d: begin of (%d,%d) fails (no space)\n",x,e,s); nskip++; nxt[x]=s+1 } } \
:: atomic { up[x] && rn[x] && nep[x]==e && nxt[x]==s && DEAD(x,e,s) -> nxt[x]=s+1 } \
:: atomic { up[x] && SES(x,e) && !DEAD(x,e,s) && !H(x,(PE(x,e)+2)%3,B(e,s)) && TALK(x,COPYFROM(x,e),e) \
      && (sl[F(e,s)]&(1<<((PE(x,e)+2)%3))) && H(COPYFROM(x,e),(PE(x,e)+2)%3,B(e,s)) && HASROOM(x,e,s) -> \
      q1=PE(x,e); p1=(q1+2)%3; h[x*3+p1]=h[x*3+p1]|B(e,s); TAGCOPY(x,e,s) ACKCOPY(x,e,s) FLIP(x,e,s) printf("machine %d holds a copy of shard %d of (%d,%d)\n",x,p1,e,s); q1=0; p1=0 } \
:: atomic { up[x] && SES(x,e) && TALK(x,MEM(e,0),e) && sl[F(e,s)]==7 && !(cd&FB(e,s)) && !(mw[F(e,s)]&(1<<PE(x,e))) && !DEAD(x,e,s) \
      && H(x,PE(x,e),B(e,s)) -> d_step { man[x]=man[x]|B(e,s); mw[F(e,s)]=mw[F(e,s)]|(1<<PE(x,e)); TAGMAN(x,e,s) PROMISE(x,e,s) printf("machine %d has the manifest of (%d,%d)\n",x,e,s); \
      if :: EARLY && mw[F(e,s)]==7 -> early(e,s) :: else fi } } \
:: atomic { up[x] && SES(x,e) && ISCO(x,e) && ak[F(e,s)]==7 && mw[F(e,s)]==7 && LIVE(e) && !(cd&FB(e,s)) && !((MEM(e,0)!=x) && (dP&FB(e,s))) -> d_step { decP(e,s) } } \
:: atomic { CANCEL && up[x] && SES(x,e) && MEM(e,0)==x && sl[F(e,s)]!=0 && !(cd&FB(e,s)) -> d_step { printf("coordinator %d: (%d,%d) CANCELLED\n",x,e,s); dC=dC|GIVENUP(e,s); cd=cd|GIVENUP(e,s) } } \
:: atomic { up[x] && SES(x,e) && (dP&FB(e,s)) && wmi[x]<=F(e,s) && (PARTS==1 || !((kp[x]|tomb[x])&FB(e,s))) -> d_step { learnP(x,e,s) } } \
:: atomic { up[x] && SES(x,e) && (dC&FB(e,s)) && !(tomb[x]&FB(e,s)) && wmi[x]<=F(e,s) -> d_step { printf("machine %d hears CANCELLED (%d,%d), frees it\n",x,e,s); clr(x,GONEB(e,s)); tomb[x]=tomb[x]|GIVENUP(e,s); FORGETP(x,e,s) } }

inline early(e,s) { /* mutant: manifest everywhere, so older goes */
  clr(MEM(e,0),(B(e,s)-1)); clr(MEM(e,1),(B(e,s)-1)); clr(MEM(e,2),(B(e,s)-1)) }

inline decP(e,s) {
  /* truth: every member that is not an unnoticed loss really holds what it should */
  q1=0;
  do :: q1<3 ->
        assert(!up[MEM(e,q1)] || nep[MEM(e,q1)]!=e || wmi[MEM(e,q1)]>F(e,s) || (H(MEM(e,q1),q1,B(e,s)) && H(MEM(e,q1),(q1+2)%3,B(e,s)) && (man[MEM(e,q1)]&B(e,s))));
        q1++
     :: else -> break od; q1=0;
  printf("(%d,%d) reported PROTECTED by machine %d\n",e,s,_pid-1); dP=dP|FB(e,s);
#if TAKEOVER
  if :: MEM(e,0)==_pid-1 -> cd=cd|(FB(e,s+1)-1) :: else fi;
#else
  cd=cd|FB(e,s);
  if :: (dP&STEP(F(e,s)))==STEP(F(e,s)) -> cd=cd|LOWER(F(e,s)) :: else fi;    /* a step decided decides everything older too */
#endif
#if KEEP==2
  m1=0; top(kp[MEM(e,0)]); ret[F(e,s)] = m1|FB(e,s); m1=0;
#endif
  if :: (dP&STEP(F(e,s)))==STEP(F(e,s)) && np<LAST(F(e,s)) -> np=LAST(F(e,s)) :: else fi }

inline learnP(x,e,s) {
  printf("machine %d hears PROTECTED (%d,%d), frees older\n",x,e,s);
#if PARTS==2
  kp[x]=kp[x]|FB(e,s); m1=0;
  if :: PARTFREE || (kp[x]&STEP(F(e,s)))==STEP(F(e,s)) -> wmi[x]=LAST(F(e,s)); kp[x]=kp[x]&~LOWER(F(e,s)); m1=LOWER(F(e,s)) :: else fi;
#else
  wmi[x]=F(e,s)+1;
#if KEEP==2
  kp[x]=ret[F(e,s)];
#else
  kp[x]=FB(e,s);
#endif
#if IDENT
  m1 = (FB(e,s)-1) & ~kp[x];
#else
  m1 = (B(e,s)-1);
#endif
#endif
  /* P3: the newest protected save is never freed here */
  assert(!IDENT || np==0 || (m1 & STEP(np-1))==0);
  clr(x,m1); m1=0 }

#define CB STEP(chosen-1)
#if PARTS==2
#define KEEPS(x) (kp[x]&(LASTS(kp[x])|(LASTS(kp[x])>>1)))   /* a step in part PROTECTED is not kept */
#else
#define KEEPS(x) kp[x]
#endif
inline learnR(x) { /* the recovered save is protected again */
  printf("machine %d hears: recovered save protected again, frees older\n",x); wmi[x]=chosen; m1=0;
#if KEEP==2
  top(kp[x]&((1<<(chosen-1))-1));
#endif
  kp[x]=m1|CB; m1=LOWER(chosen-1) & ~kp[x];
  assert(!IDENT || np==0 || (m1 & STEP(np-1))==0);
  clr(x,m1); m1=0 }

#define PQ PE(x,ep)

#define RPROM(x) if :: (man[x]&CB)==CB && H(x,PQ,CB) && H(x,(PQ+2)%3,CB) -> rk = rk|(1<<PQ) :: else fi

/* a source for x's shard of the chosen save; it may vanish only with a lost machine, which ends the epoch */
#define SRC(x) (chosen==0 || (ANY(PQ)&CB)==CB)

proctype Ent(byte x) {
  do
  ACT(1,1)
#if S>1
  ACT(1,2)
#endif
#if S>2
  ACT(1,3)
#endif
#if S>3
  ACT(1,4)
#endif
#if E>1
  ACT(2,1)
#if S>1
  ACT(2,2)
#endif
#if S>2
  ACT(2,3)
#endif
#if S>3
  ACT(2,4)
#endif
#endif
#if E>2
  ACT(3,1)
#if S>1
  ACT(3,2)
#endif
#if S>2
  ACT(3,3)
#endif
#endif
  /* join the new epoch (HTH_MSG_HELLO of its sessions): from here on messages of older sessions are dropped */
  :: atomic { ph==0 && ISM(x,ep) && nep[x]<ep -> d_step {
       printf("machine %d joins epoch %d\n",x,ep); nep[x]=ep; up[x]=true; lost[x]=false; rn[x]=false; tomb[x]=0; nxt[x]=0 } }
  /* carry out the plan (HTH_KIND_PLAN), then HTH_KIND_VOTE: drop what it does not keep, get one's own shard and the manifest */
  :: atomic { ph==1 && up[x] && nep[x]==ep && ISM(x,ep) && !(done&(1<<PQ)) && SRC(x) -> d_step {
       printf("machine %d carries out the plan: chosen %d keep %d\n",x,chosen,rt); q1=PQ; clr(x,(OCC(x)&~rt));
       if :: chosen>0 ->
             if :: !H(x,q1,CB) ->
                   assert(SAVES(OCC(x)|CB)<=SLOTS);                  /* P4: no room to recover */
                   h[x*3+q1]=h[x*3+q1]|CB;
#if !VERIFY
                   if :: ((bad[MEM(ep,(q1+1)%3)]&CB) && H(MEM(ep,(q1+1)%3),q1,CB)) -> assert(false) :: else fi;
#endif
#if !IDENT
                   tg[x*9+q1*3+chosen-1] = tg[MEM(ep,(q1+1)%3)*9+q1*3+chosen-1];
#endif
                :: else fi;
             man[x]=man[x]|CB
          :: else fi;
       done=done|(1<<q1); q1=0 } }
  :: atomic { ph==2 && up[x] && nep[x]==ep && !rn[x] && ISM(x,ep) -> d_step { rn[x]=true;
#if IDENT
       nxt[x] = (chosen>0 -> ((chosen-1)%S)+2 : 1);
#else
       nxt[x] = chosen+1;
#endif
       if :: !NOREPAIR && chosen>0 -> RPROM(x) :: else fi } }
  /* repair of the recovered save: same promises, in the new session */
  :: atomic { !NOREPAIR && ph==2 && up[x] && nep[x]==ep && rn[x] && ISM(x,ep) && chosen>0 && wmi[x]<=chosen && !H(x,(PQ+2)%3,CB) &&
       (ANY((PQ+2)%3)&CB)==CB && (OCC(x)&CB) -> d_step { p1=(PQ+2)%3; h[x*3+p1]=h[x*3+p1]|CB;
#if !IDENT
       tg[x*9+p1*3+chosen-1] = tg[MEM(ep,p1)*9+p1*3+chosen-1];
#endif
       p1=0; RPROM(x) } }
  :: atomic { ph==2 && up[x] && nep[x]==ep && MEM(ep,0)==x && rk==7 && !rdone -> d_step { rdone=true; if :: IDENT && np<chosen -> np=chosen :: else fi } }
  :: atomic { ph==2 && up[x] && nep[x]==ep && ISM(x,ep) && rdone && wmi[x]<chosen && IDENT -> d_step { learnR(x) } }
  od
}

inline lossguard() { hl=false; if :: outst -> healthy() :: else -> hl=true fi }

/* after losing machine y: what was reported PROTECTED, or newer, must be there */
#define CHKREC assert(!IDENT || np==0 || GE(LASTS(REC),np))

inline newep() {
  ep++; ph=0; chosen=0; rt=0; done=0; rk=0; rdone=false }

#define LOSE(q) \
:: atomic { nloss<NLOSS && ep>0 && up[MEM(ep,q)] && nep[MEM(ep,q)]==ep -> lossguard(); \
     if :: hl -> hl=false; d_step { nloss++; outst=true; i1=MEM(ep,q); printf("machine %d LOST (rank %d)\n",i1,q); wipe(i1); up[i1]=false; lost[i1]=true; i1=0; CHKREC } \
        :: else -> hl=false fi }

#define REBOOTS(q) \
:: atomic { REBOOT && nboot<1 && ph==2 && up[MEM(ep,q)] && nep[MEM(ep,q)]==ep && rn[MEM(ep,q)] && !outst -> d_step { printf("machine of rank %d reboots empty in the same epoch\n",q); nboot++; outst=true; i1=MEM(ep,q); \
     h[i1*3]=0; h[i1*3+1]=0; h[i1*3+2]=0; man[i1]=0; i1=0; CHKREC } }

/* machine of rank q is replaced by the idle one; it may go on running in its old epoch */
#define REPLACE(q) \
:: atomic { ep<E && ep>0 && (lost[MEM(ep,q)] || nrepl<REPL) -> \
     if :: lost[MEM(ep,q)] -> hl=true :: else -> lossguard() fi; \
     if :: hl -> hl=false; d_step { \
         i1 = 6-A0-A1-A2; printf("restart: epoch %d, machine %d in place of %d (rank %d)\n",ep+1,i1,MEM(ep,q),q); \
         if :: !lost[MEM(ep,q)] -> nrepl++; outst=true :: else fi; \
         mem[(ep+1)*3]=A0; mem[(ep+1)*3+1]=A1; mem[(ep+1)*3+2]=A2; mem[(ep+1)*3+q]=i1; i1=0; newep(); CHKREC } \
        :: else -> hl=false fi }

#define NOTEND atomic { !(ph==2 && up[A0]&&up[A1]&&up[A2]&&nep[A0]==ep&&nep[A1]==ep&&nep[A2]==ep) -> skip }

init {
  byte k;
  d_step { mem[3]=0; mem[4]=1; mem[5]=2; ep=1; ph=0; k=0;
    do :: k<4 -> up[k]=false; k++ :: else -> break od; k=0;
#if PRE
    /* start from: save (1,1) PROTECTED, everybody knows it, epoch 1 running */
    do :: k<3 -> up[k]=true; nep[k]=1; rn[k]=true; wmi[k]=PARTS; kp[k]=STEP(0); nxt[k]=PARTS+1; man[k]=STEP(0); h[k*3+k]=STEP(0); h[k*3+(k+2)%3]=STEP(0); k++ :: else -> break od; k=0;
    np=PARTS; ph=2;
#endif
    }
  run Ent(0); run Ent(1); run Ent(2); run Ent(3);
  do
  /* the planner: every member has joined and said what it holds (HTH_KIND_INVENTORY) */
  :: atomic { ph==0 && up[A0]&&up[A1]&&up[A2] && nep[A0]==ep&&nep[A1]==ep&&nep[A2]==ep -> d_step {
       m1 = REC;
       chosen=0; i1=NF; do :: i1>0 && chosen==0 -> if :: (LASTS(m1)&(1<<(i1-1))) || (PARTANY && (m1&(1<<(i1-1)))) -> chosen=LAST(i1-1) :: else fi; i1-- :: else -> break od; i1=0;
       assert(chosen==0 || (m1&CB)==CB);                                 /* P1: every part of what is chosen is whole */
#if STEPFIRST
       if :: chosen>0 -> i1=NF; q1=S; k=0;
             do :: q1>0 && k==0 -> i1=NF; do :: i1>0 && k==0 -> if :: (m1&(1<<(i1-1))) && ((i1-1)%S)==q1-1 -> k=i1 :: else fi; i1-- :: else -> break od; q1-- :: else -> break od;
             chosen=k; k=0; q1=0; i1=0 :: else fi;
#endif
       assert(!IDENT || chosen>=np);                                     /* P1 */
       if :: IDENT && chosen<np -> np=chosen :: else fi;
#if PLANKEEP==2
       rt = (1<<NF)-1;
#elif PLANKEEP==0
       rt = (chosen>0 -> CB : 0);
#else
       /* recoverable saves from the newest known watermark to the chosen one, and the keep list */
       rt = 0; i1 = wmi[A0]; if :: wmi[A1]>i1 -> i1=wmi[A1] :: else fi; if :: wmi[A2]>i1 -> i1=wmi[A2] :: else fi;
       if :: chosen>0 -> rt = m1 & ((1<<chosen)-1);
             if :: i1>0 -> rt = rt & ~LOWER(i1-1) :: else fi;
             rt = rt | (m1 & (kp[A0]|kp[A1]|kp[A2]) & ((1<<chosen)-1));
             rt = rt | CB
          :: else fi; i1=0;
#endif
#if FENCE
       /* facts nobody can use any more: forget them (fewer states) */
       i1 = 6-A0-A1-A2;
       if :: !(up[i1] && rn[i1] && nep[i1]<ep && nep[i1]>0) -> k=0; cd=0; dP=0; dC=0; do :: k<NF -> sl[k]=0; ak[k]=0; mw[k]=0; k++ :: else -> break od; k=0
          :: else fi; i1=0;
#endif
       m1=0; ph=1 } }
  /* all have voted: HTH_KIND_GO */
  :: atomic { ph==1 && done==7 -> d_step {
#if !IDENT
       /* P2: all ranks resume from shards of one save */
       if :: chosen>0 -> assert(tg[A0*9+chosen-1]==tg[A1*9+3+chosen-1] && tg[A1*9+3+chosen-1]==tg[A2*9+6+chosen-1]) :: else fi;
#endif
       ph=2; done=0; rt=0 } }
  /* restart with the same machines: process crash, memory kept */
  :: atomic { ep<E && ep>0 -> d_step { printf("restart: epoch %d, same machines\n",ep+1); mem[(ep+1)*3]=A0; mem[(ep+1)*3+1]=A1; mem[(ep+1)*3+2]=A2; newep() } }
  REPLACE(0) REPLACE(1) REPLACE(2)
  LOSE(0) LOSE(1) LOSE(2)
  REBOOTS(0) REBOOTS(1) REBOOTS(2)
  /* coordinator's process restarts inside the epoch */
  :: atomic { RESTARTC && ncr<1 && ph==2 && up[A0] && nep[A0]==ep && rn[A0] && ((cd&(dP|dC))!=0) && (!DURABLE) -> d_step { printf("coordinator restarts, forgets its decisions\n"); ncr++; cd=0 } }
  :: timeout -> /* P4: nothing more can happen */
     if :: up[A0]&&up[A1]&&up[A2]&&nep[A0]==ep&&nep[A1]==ep&&nep[A2]==ep ->
           printf("END: nothing more can happen; next steps %d %d %d\n",nxt[A0],nxt[A1],nxt[A2]); assert(ph==2 && rn[A0] && rn[A1] && rn[A2]);
           assert(nxt[A0]>S && nxt[A1]>S && nxt[A2]>S);
           assert(IDENT==0 || PLANKEEP==2 || ((OCC(A0)|OCC(A1)|OCC(A2)) & ~(KEEPS(A0)|KEEPS(A1)|KEEPS(A2)|(chosen>0 -> CB : 0)))==0)
        :: else fi; break
  od
}
