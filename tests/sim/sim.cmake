# SPDX-License-Identifier: Apache-2.0
# Engines by the thousand have alike what these make (tests/support/alike.c).
foreach(call hth_buf_new hth_buf_of hth_buf_put hth_digest_begin hth_digest_add hth_digest_end hth_manifest_decode
    hth_manifest_fini hth_plan_decode hth_plan_fini hth_epoch_make hth_epoch_fini hth_placement_make
    hth_placement_fini)
  target_link_options(scale PRIVATE -Wl,--wrap=${call})
endforeach()

# A few worlds in every ctest; tests/run asks for 3,500 seeds. Each rule that is left out is noticed: from the
# seed on that is soon found, a second or two each.
set(rules verify free-early epoch keep-chosen-only:70 deadline:130 fence register serial-in-memory promise-by-number
    head-not-on-record cancelled-unrecorded freed-by-cancelled found-not-told:100 moved-not-freed begin-by-bytes
    late-grant-dropped lent-while-written mapped-for-ever common-unpromised unreached-not-told holders-are-sources
    stalled-not-told lent-while-read bad-believed options-stay ruled-out
    forgotten-epoch silence-vouched:140 domains-shared pods-unsaid moved-for-ever)
if(HEARTH_SANITIZE)
  hearth_case(sim.worlds sim COMMAND sim --seeds 40 --nodes 4 TIMEOUT 300)
else()
  hearth_case(sim.worlds sim COMMAND sim --seeds 200 --nodes 5 TIMEOUT 300)
  hearth_case(sim.all_alike sim COMMAND sim --seeds 60 --nodes 5 --copies 2 --keep 2 --ranks 2 TIMEOUT 300)
  hearth_case(sim.strong sim COMMAND sim --seeds 60 --nodes 5 --strong TIMEOUT 300)
  hearth_case(sim.large sim COMMAND sim --seeds 6 --large TIMEOUT 300)
  hearth_case(sim.large_flips sim COMMAND sim --seeds 12 --large --faults flip --count 12
    TIMEOUT 300)
  hearth_case(sim.said sim COMMAND sim --seeds 100 --first 3000 --nodes 8 --faults stop+silence+crash+goon TIMEOUT 300)
  hearth_case(sim.slots sim COMMAND sim --seeds 40 --nodes 4 --count 14 --faults crash+cut+goon+room TIMEOUT 300)
  hearth_case(sim.upgrade sim COMMAND sim --seeds 150 --nodes 8 --faults upgrade TIMEOUT 300)
  hearth_case(sim.back sim COMMAND sim --back 4 TIMEOUT 300)
  hearth_case(sim.back_two_ranks sim COMMAND sim --back 3 --copies 2 --ranks 2 TIMEOUT 300)
  hearth_case(sim.back_with_coordinator sim COMMAND sim --back 4 --two TIMEOUT 300)
  hearth_case(sim.back_with_parent sim COMMAND sim --back 4 --two --with 1 --degree 2 TIMEOUT 300)
  hearth_case(sim.manifest_came_early sim COMMAND sim --world seed=1362,nodes=8,ranks=3,copies=1,min-copies=1,keep=1,degree=17,heartbeat=195,dead=1562,connect=972,save=5967,recover=18280,every=144,data=64,work=3,count=6,run=12000,left-out=16777202,faults=net+loss+kill+restart+stale+back TIMEOUT 300)
  hearth_case(sim.out_of_reach sim COMMAND sim --world seed=15161,nodes=2,ranks=2,copies=1,min-copies=1,keep=2,degree=2,heartbeat=196,dead=2157,connect=1502,save=3483,recover=12158,every=100,room=510,data=64,work=1,count=14,run=12000,left-out=16764559,faults=loss+kill+stale+crash+stop+silence+pair+partition+shrink+grow+room+write+rot+giveup+twice+goon+apart TIMEOUT 300)
  # The coordinator cannot write heads, and the engine of another node, whose epoch record is damaged, joins the
  # epoch anew while the epoch's first save is undecided; then that save is recovered.
  hearth_case(sim.joined_anew sim COMMAND sim --world seed=91462,nodes=8,ranks=1,copies=3,min-copies=3,keep=1,pods=1,degree=4,heartbeat=324,dead=2592,connect=2928,save=5212,recover=13904,every=100,data=64,count=6,run=12000,left-out=16777194,faults=loss+stale+crash+stop+silence+pair+oneway+partition+flap+two+grow+renumber+write+clock+slow+giveup+apart+groups+mtu+cut+block+beyond+record+read+options+hours TIMEOUT 300)
  hearth_case(sim.scale sim COMMAND scale --nodes 1000 --ranks 2 --memory 450 TIMEOUT 300)
  # What `hearth what-if` says beforehand, and what then happens.
  hearth_case(sim.what_if sim COMMAND what_if TIMEOUT 300)
  hearth_case(sim.what_if_moved sim COMMAND what_if moved TIMEOUT 300)
  hearth_case(sim.what_if_moving sim COMMAND what_if moving TIMEOUT 300)
  # Histories by hand, and each rule that one of them is about left out.
  foreach(row serial serial-two deep restart flaps many moved given-back given-back-later crowded
      twice-lost twice-lost-many twice-lost-copies unsettled all-again apart apart-oneway
      apart-tree apart-coordinator apart-coordinator-two apart-from-coordinator
      apart-to-coordinator apart-then-lost apart-other apart-moved apart-twice apart-lost
      ruled-out staged blocked steps-differ steps-differ-nodes sets both-open forgotten flipped
      flipped-strong late queued written)
    string(REPLACE - _ name ${row})
    hearth_case(sim.row_${name} sim COMMAND rows ${row} TIMEOUT 300)
  endforeach()
  hearth_case(sim.row_blob sim COMMAND rows deep --blob TIMEOUT 300)
  hearth_case(sim.row_without_record sim COMMAND rows serial --break record TIMEOUT 300)
  hearth_case(sim.row_without_moved sim COMMAND rows moved --break moved TIMEOUT 300)
  hearth_case(sim.row_without_apart sim COMMAND rows apart --break apart TIMEOUT 300)
  hearth_case(sim.row_without_ruled_out sim COMMAND rows ruled-out --break ruled-out TIMEOUT 300)
  hearth_case(sim.row_without_staged sim COMMAND rows staged --break staged-by-bytes TIMEOUT 300)
  hearth_case(sim.row_without_steps sim COMMAND rows steps-differ --break passed-waits TIMEOUT 300)
  hearth_case(sim.row_without_counts sim COMMAND rows sets --break sets-count-together TIMEOUT 300)
  hearth_case(sim.row_without_early sim COMMAND rows written --break early TIMEOUT 300)
  hearth_case(sim.row_without_lateness sim COMMAND rows blocked --break all-alive TIMEOUT 300)
  hearth_case(sim.row_without_apart_tree sim COMMAND rows apart-tree --break apart TIMEOUT 300)
  foreach(rule ${rules})
    set(first 1)
    if(rule MATCHES "^(.*):(.*)$")
      set(rule ${CMAKE_MATCH_1})
      set(first ${CMAKE_MATCH_2})
    endif()
    hearth_case(sim.without_${rule} sim COMMAND sim --first ${first} --seeds 2000 --nodes 8 --break ${rule} TIMEOUT 300)
  endforeach()
  hearth_case(sim.without_late-promises sim COMMAND sim --first 200 --seeds 2000 --nodes 5 --count 20 --break late-promises TIMEOUT 300)
  hearth_case(sim.without_some-wait-for-all sim COMMAND sim --seeds 2000 --nodes 8 --count 0 --break some-wait-for-all TIMEOUT 300)
  hearth_case(sim.asks sim COMMAND sim --seeds 60 --nodes 5 --asks TIMEOUT 300)
  hearth_case(sim.some sim COMMAND sim --seeds 60 --nodes 5 --some TIMEOUT 300)
  hearth_case(sim.without_room-unchecked sim COMMAND sim --seeds 2000 --nodes 5 --count 14 --break room-unchecked TIMEOUT 300)
endif()
