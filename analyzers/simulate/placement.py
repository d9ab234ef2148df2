"""Nodes and devices per node of the pools, such that the nodes of a run have room for them.

verl reserves one group of devices on one node per `nnodes` of a pool (Ray's STRICT_PACK), and
waits for ever where no node has room for a group, though there are devices enough in all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from rlinsight.errors import ConfigError


@dataclass(frozen=True)
class Shape:
    """Groups of equal size: `nodes` of `per_node` devices each."""

    nodes: int
    per_node: int

    @property
    def devices(self) -> int:
        """Return all devices of the groups."""
        return self.nodes * self.per_node


def placed(
    now: Mapping[str, Shape], wanted: Mapping[str, int], groups: Mapping[str, int]
) -> dict[str, Shape]:
    """Return the shapes of the pools in `wanted` (devices of each), on the nodes of `now`.

    Pools that are not in `wanted` stay as they are. `groups` are devices that stay together on a
    node (a replica); a pool without has groups of one. Node sizes are kept where the devices divide
    by them; else there are no more nodes than before if that is possible, and then as few as
    possible. More devices than `now` has in all need nodes that are not known, and are placed by
    the same preference.

    Raises ConfigError where the devices suffice and no shapes fit.

    Worked example: a node of 8 that trains and one of 8 that generates; 12 are to train and 4 to
    generate. Two groups of 6 leave 2 devices on each node, and no room for a group of 4, but three
    groups of 4 beside one of 4 fit.
    """
    options = {
        pool: list(_shapes(now[pool], devices, groups.get(pool, 1)))
        for pool, devices in wanted.items()
    }
    rest = [shape for pool, shape in now.items() if pool not in wanted]
    nodes = [shape.per_node for shape in now.values() for _ in range(shape.nodes)]
    ranked = sorted(product(*(enumerate(of_pool) for of_pool in options.values())),
                    key=lambda chosen: sum(rank for rank, _ in chosen))  # fmt: skip
    choices = [[shape for _, shape in chosen] for chosen in ranked]
    beyond = sum(wanted.values()) + sum(shape.devices for shape in rest) > sum(nodes)
    for shapes in choices:
        if beyond or fit([*shapes, *rest], nodes):
            return dict(zip(options, shapes, strict=True))
    asked = ", ".join(f"{count} for `{pool}`" for pool, count in wanted.items())
    raise ConfigError(
        f"expected devices that nodes of {', '.join(map(str, nodes))} have room for, found {asked}"
    )


def _shapes(now: Shape, devices: int, group: int) -> Iterator[Shape]:
    """Yield the ways to split a pool's devices into equal groups, the preferred first."""
    if devices % now.per_node == 0:
        yield Shape(devices // now.per_node, now.per_node)
    sizes = [
        size
        for size in range(min(now.per_node, devices), 0, -1)
        if devices % size == 0 and size % group == 0
    ]
    for size in sorted(sizes, key=lambda size: devices // size > now.nodes):
        if size != now.per_node:
            yield Shape(devices // size, size)


def fit(shapes: Sequence[Shape], nodes: Sequence[int]) -> bool:
    """Return whether nodes of so many devices have room for all groups, each on one node.

    Exact for groups of two sizes, which is what two pools have; of more, largest first, it may miss
    a way. Worked example: 6, 6 and 4 do not fit into 8 and 8; 4, 4, 4 and 4 do.
    """
    by_size: dict[int, int] = {}
    for shape in shapes:
        by_size[shape.per_node] = by_size.get(shape.per_node, 0) + shape.nodes
    if not by_size:
        return True
    large, *others = sorted(by_size.items(), reverse=True)
    if len(others) > 1:
        return _first_fit(by_size, nodes)
    small, wanted = others[0] if others else (1, 0)
    # The most small groups that have room beside each number of large ones.
    room = {0: 0}
    for node in nodes:
        beside: dict[int, int] = {}
        for placed_large, placed_small in room.items():
            for more in range(min(node // large[0], large[1] - placed_large) + 1):
                key = placed_large + more
                count = placed_small + (node - more * large[0]) // small
                beside[key] = max(beside.get(key, 0), count)
        room = beside
    return room.get(large[1], -1) >= wanted


def _first_fit(by_size: Mapping[int, int], nodes: Sequence[int]) -> bool:
    free = sorted(nodes)
    for size, count in sorted(by_size.items(), reverse=True):
        for _ in range(count):
            at = next((i for i, left in enumerate(free) if left >= size), None)
            if at is None:
                return False
            free[at] -= size
            free.sort()
    return True
