# SPDX-License-Identifier: Apache-2.0
# A few worlds in every ctest; tests/run asks for 2,000 seeds. Each rule that is left out is noticed.
set(rules verify free-early epoch keep-chosen-only deadline fence)
if(HEARTH_SANITIZE)
  hearth_case(sim.worlds sim COMMAND sim --seeds 40 --nodes 4 TIMEOUT 300)
else()
  hearth_case(sim.worlds sim COMMAND sim --seeds 200 --nodes 5 TIMEOUT 300)
  hearth_case(sim.two_copies sim COMMAND sim --seeds 60 --nodes 5 --copies 2 --keep 2 --ranks 2 TIMEOUT 300)
  hearth_case(sim.scale sim COMMAND sim --scale 1000 TIMEOUT 300)
  foreach(rule ${rules})
    hearth_case(sim.without_${rule} sim COMMAND sim --seeds 1000 --nodes 4 --break ${rule} TIMEOUT 300)
  endforeach()
endif()
