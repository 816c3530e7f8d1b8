/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hearth, one save: what PROTECTED says where several nodes are one failure domain. For SPIN.
 *
 * 4 nodes on 2 machines: nodes 0 and 1, nodes 2 and 3. Each object has its owner (node 0, node 2),
 * and C copies, which placement puts down once. Promises come in any order, or never. One machine
 * is lost at any moment, with both nodes; the coordinator notes that at any later moment. What it
 * calls PROTECTED must be had from the other machine.
 *
 * Switches (-D): bounds C, MINC; the rules KNOWN, APART (1 = as proposed).
 */
#ifndef C
#define C 2         /* copies */
#endif
#ifndef MINC
#define MINC 1      /* min_copies */
#endif
#ifndef KNOWN
#define KNOWN 1     /* placement knows which nodes are of one machine */
#endif
#ifndef APART
#define APART 1     /* promised holders count by machines, not by nodes alone */
#endif
#define ON(m,n)  (((m)>>(n))&1)
#define NODES(m) (ON(m,0)+ON(m,1)+ON(m,2)+ON(m,3))
#define BOTH(m)  ((((m)&3)!=0)+(((m)&12)!=0))    /* machines that these nodes are on */
#define OTHER(n) ((n)<2 -> 12 : 3)               /* the nodes of the other machine */
#define LEAST(a,b) ((a)<(b) -> (a) : (b))
#define COUNTS(j) (prom[j]&~noted)
#define LIVES(j)  (place[j]&~noted)
#define ENOUGH(j) (NODES(COUNTS(j)) >= 1+MINC && \
  (!APART || BOTH(COUNTS(j)) >= LEAST(1+MINC, BOTH(LIVES(j)))))

byte place[2], prom[2];     /* [object] nodes that have a place; that have promised */
byte lost, noted;           /* nodes: of the machine that is lost; that the coordinator knows of */
bool said;                  /* PROTECTED */

inline put(j, owner, from) {
  if
  :: (1 & (from) & ~place[j]) -> place[j] = place[j] | 1
  :: (2 & (from) & ~place[j]) -> place[j] = place[j] | 2
  :: (4 & (from) & ~place[j]) -> place[j] = place[j] | 4
  :: (8 & (from) & ~place[j]) -> place[j] = place[j] | 8
  fi
}
inline places(j, owner) {
  place[j] = 1 << (owner);
  if :: KNOWN -> put(j, owner, OTHER(owner)) :: !KNOWN -> put(j, owner, 15) fi;
  if :: C > 1 -> put(j, owner, 15) :: else fi
}
inline promise(j, n) { /* PROMISE: it holds what is assigned to it */
  (ON(place[j],n) && !ON(prom[j],n) && !ON(lost,n)) -> prom[j] = prom[j] | (1 << (n))
}

init {
  atomic { places(0, 0); places(1, 2) }
  do
  :: atomic { promise(0, 0) } :: atomic { promise(0, 1) }
  :: atomic { promise(0, 2) } :: atomic { promise(0, 3) }
  :: atomic { promise(1, 0) } :: atomic { promise(1, 1) }
  :: atomic { promise(1, 2) } :: atomic { promise(1, 3) }
  :: atomic { lost == 0 -> lost = 3; printf("machine of nodes 0 and 1 is lost\n") }
  :: atomic { lost == 0 -> lost = 12; printf("machine of nodes 2 and 3 is lost\n") }
  :: atomic { noted != lost -> noted = lost; printf("coordinator notes the loss\n") }
  :: atomic { !said && ENOUGH(0) && ENOUGH(1) -> said = true; printf("save is PROTECTED\n") }
  :: atomic { said && ((prom[0] & ~lost) == 0 || (prom[1] & ~lost) == 0) -> assert(false) }
  :: atomic { said && lost != 0 -> break }
  od
}
