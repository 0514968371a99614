//! The exchange of seats: a balanced assignment of nodes to arcs that differs as little as possible
//! from a given one.
//!
//! Each arc has seats, and each seat is taken by a node or vacant. A chain of moves hands seats
//! over: a node takes a seat from another one, which takes a seat of another arc, and so on. The
//! cheapest chain is a shortest path between nodes, as in the successive-shortest-path algorithm
//! for the minimum-cost flow. This module does not know what a seat means.

use std::collections::BTreeSet;

use crate::ring::Slot;

// The costs are of different magnitudes: no sum of smaller ones reaches the next larger one.

/// The cost of a vacant seat.
const VACANCY: i64 = 1 << 52;
/// The cost of each seat above or below the fair number, times its distance.
const IMBALANCE: i64 = 1 << 36;
/// The cost of a move.
const MOVE: i64 = 1 << 24;
/// The cost of a move that takes the seat of the first original node. The remaining cost is the
/// number of seats that the node shares with the arc's other nodes in all arcs, so that a node
/// shares its arcs with many different nodes.
const FIRST_SEAT: i64 = 1 << 12;

/// The position of a node in the order of the slots. The number of nodes stands for a vacant seat.
type Place = usize;

/// The seats of one arc.
#[derive(Debug)]
struct Seats {
    now: Vec<Place>,
    /// The first original node, which the arc keeps if another move is as good.
    first: Option<Place>,
    /// The nodes that had a seat at the beginning.
    original: Vec<Place>,
    /// The nodes that may take a seat.
    candidates: Vec<Place>,
}

/// A move: in an arc, a node takes the seat of another node, or a vacant seat.
#[derive(Clone, Copy, Debug)]
struct Move {
    arc: usize,
    from: Place,
    to: Place,
    cost: i64,
}

/// A chain of moves, the last one first. It changes the number of seats of its two ends only.
#[derive(Debug)]
struct Chain {
    moves: Vec<Move>,
    cost: i64,
}

/// The cheapest way to a node: its cost, and its last move; no move where the chain begins.
#[derive(Clone, Copy, Debug)]
struct Way {
    cost: i64,
    last: Option<Move>,
}

/// An assignment of nodes to the seats of arcs.
#[derive(Debug)]
pub(super) struct Exchange {
    nodes: Vec<Slot>,
    arcs: Vec<Seats>,
    /// The number of all seats.
    seats: usize,
    /// The number of seats of each node.
    loads: Vec<i64>,
    /// For each node and each other node, the number of arcs in which both have a seat.
    shared: Vec<Vec<i64>>,
}

impl Exchange {
    /// Creates an exchange between nodes, without arcs.
    pub(super) fn new(nodes: &BTreeSet<Slot>) -> Self {
        let count = nodes.len();
        Self {
            nodes: nodes.iter().copied().collect(),
            arcs: Vec::new(),
            seats: 0,
            loads: vec![0; count],
            shared: vec![vec![0; count]; count],
        }
    }

    /// Adds an arc with the given number of seats. Each node of `original` that is a candidate has
    /// a seat.
    pub(super) fn add_arc(&mut self, original: &[Slot], candidates: &BTreeSet<Slot>, seats: usize) {
        let place = |slot: &Slot| self.nodes.binary_search(slot).ok();
        let candidates: Vec<Place> = candidates.iter().filter_map(place).collect();
        let remain: BTreeSet<Place> =
            original.iter().filter_map(place).filter(|it| candidates.contains(it)).collect();
        let remain: Vec<Place> = remain.into_iter().take(seats).collect();
        let first = original.first().and_then(place);
        let (arc, vacant) = (self.arcs.len(), self.nodes.len());
        self.seats += seats;
        let now = vec![vacant; seats];
        self.arcs.push(Seats { now, first, original: remain.clone(), candidates });
        for to in remain {
            self.apply(Move { arc, from: vacant, to, cost: 0 });
        }
    }

    /// Returns the number of vacant seats.
    pub(super) fn vacancies(&self) -> usize {
        let vacant = self.nodes.len();
        self.arcs.iter().flat_map(|arc| &arc.now).filter(|place| **place == vacant).count()
    }

    /// Returns the number of seats that each node has at least in a balanced assignment.
    pub(super) fn fair_share(&self) -> usize {
        self.seats / self.nodes.len().max(1)
    }

    /// Returns the nodes of each arc.
    pub(super) fn holders(&self) -> impl Iterator<Item = BTreeSet<Slot>> {
        let slot = |place: &Place| self.nodes.get(*place).copied();
        self.arcs.iter().map(move |arc| arc.now.iter().filter_map(slot).collect())
    }

    /// Fills the vacant seats, and balances the numbers of seats while the number of moves is at
    /// most `moves_max`, but at least one for each vacant seat.
    pub(super) fn settle(&mut self, moves_max: usize) {
        let moves_max = i64::try_from(moves_max).unwrap_or(i64::MAX);
        let mut vacancies = i64::try_from(self.vacancies()).unwrap_or(i64::MAX);
        let mut moves = 0;
        while let Some(mut chain) = self.cheapest_chain().filter(|chain| chain.cost < 0) {
            let fills = chain.moves.last().is_some_and(|first| first.from == self.nodes.len());
            vacancies -= i64::from(fills);
            if moves + self.count_chain(&chain) + vacancies > moves_max {
                // Each vacant seat has a move of its own that is always possible.
                match self.cheapest_fill().filter(|_| fills) {
                    Some(fill) => chain.moves = vec![fill],
                    None => break,
                }
            }
            moves += self.count_chain(&chain);
            chain.moves.iter().for_each(|step| self.apply(*step));
        }
    }

    /// Returns the number of seats that a chain adds to those that differ from the original.
    fn count_chain(&self, chain: &Chain) -> i64 {
        chain.moves.iter().map(|step| self.count_moves(*step)).sum()
    }

    /// Returns the cheapest chain of moves; `None` if no move is possible.
    fn cheapest_chain(&self) -> Option<Chain> {
        let ways = self.cheapest_ways();
        let end = |(way, load): (&Option<Way>, &i64)| {
            let Way { cost, last } = (*way)?;
            Some((cost + self.load_cost(load + 1), last?))
        };
        let ends = ways.iter().zip(&self.loads).filter_map(end);
        let (cost, last) = ends.min_by_key(|(cost, _)| *cost)?;
        let way_to = |place: Place| ways.get(place).copied().flatten()?.last;
        // A chain visits no node twice, so the bound is never reached.
        let moves = std::iter::successors(Some(last), |step| way_to(step.from)).take(ways.len());
        Some(Chain { moves: moves.collect(), cost })
    }

    /// Returns the cheapest single move to a vacant seat; `None` if no seat is vacant.
    fn cheapest_fill(&self) -> Option<Move> {
        let vacant = self.nodes.len();
        let cost = |step: &Move| {
            let load = self.loads.get(step.to).copied().unwrap_or(0);
            step.cost + self.load_cost(load + 1)
        };
        self.cheapest_moves().into_iter().filter(|step| step.from == vacant).min_by_key(cost)
    }

    /// Returns the cheapest way to each node and, last, to the vacant seats, where a way can only
    /// begin: the algorithm of Bellman and Ford.
    fn cheapest_ways(&self) -> Vec<Option<Way>> {
        let begin =
            |load: &i64| (*load > 0).then(|| Way { cost: -self.load_cost(*load), last: None });
        let vacant = Some(Way { cost: -VACANCY, last: None });
        let mut ways: Vec<_> = self.loads.iter().map(begin).chain([vacant]).collect();
        let moves = self.cheapest_moves();
        // No shortest path has more moves than there are nodes.
        for _ in 0..=self.nodes.len() {
            let mut is_final = true;
            for step in &moves {
                let Some(way) = ways.get(step.from).copied().flatten() else { continue };
                let cost = way.cost + step.cost;
                if let Some(known) = ways.get_mut(step.to)
                    && known.is_none_or(|known| cost < known.cost)
                {
                    *known = Some(Way { cost, last: Some(*step) });
                    is_final = false;
                }
            }
            if is_final {
                break;
            }
        }
        ways
    }

    /// Returns the cheapest move from each node, or from a vacant seat, to each other node.
    fn cheapest_moves(&self) -> Vec<Move> {
        let count = self.nodes.len();
        let mut moves: Vec<Option<Move>> = vec![None; (count + 1) * count];
        for (arc, seats) in self.arcs.iter().enumerate() {
            for to in seats.candidates.iter().filter(|to| !seats.now.contains(to)) {
                for from in &seats.now {
                    let step = Move { arc, from: *from, to: *to, cost: 0 };
                    let step = Move { cost: self.move_cost(step), ..step };
                    if let Some(known) = moves.get_mut(from * count + to)
                        && known.is_none_or(|known| step.cost < known.cost)
                    {
                        *known = Some(step);
                    }
                }
            }
        }
        moves.into_iter().flatten().collect()
    }

    /// Returns the cost of a node's seat number `load`. It increases with the number, and is 0 if a
    /// balanced assignment may have a node with so many seats, and others with one less.
    fn load_cost(&self, load: i64) -> i64 {
        let nodes = self.nodes.len().max(1);
        let bound = |seats: usize| i64::try_from(seats).unwrap_or(i64::MAX);
        let low = bound(self.seats / nodes);
        let high = bound(self.seats.div_ceil(nodes));
        let distance = if load <= low { load - low - 1 } else { (load - high).max(0) };
        IMBALANCE * distance
    }

    /// Returns the cost of a move.
    fn move_cost(&self, step: Move) -> i64 {
        let others = self.arcs.get(step.arc).map_or(&[][..], |arc| &arc.now);
        let others = others.iter().filter(|place| **place != step.from);
        let row = self.shared.get(step.to).map_or(&[][..], Vec::as_slice);
        let shared: i64 = others.filter_map(|other| row.get(*other)).sum();
        let takes_first = self.arcs.get(step.arc).is_some_and(|arc| arc.first == Some(step.from));
        MOVE * self.count_moves(step) + FIRST_SEAT * i64::from(takes_first) + shared
    }

    /// Returns the number of seats that a move adds to those that differ from the original. It
    /// is negative if the move restores the original.
    fn count_moves(&self, step: Move) -> i64 {
        let Some(arc) = self.arcs.get(step.arc) else { return 0 };
        let is_new =
            |place: Place| i64::from(place < self.nodes.len() && !arc.original.contains(&place));
        is_new(step.to) - is_new(step.from)
    }

    /// Executes a move.
    fn apply(&mut self, step: Move) {
        let Some(arc) = self.arcs.get_mut(step.arc) else { return };
        let Some(seat) = arc.now.iter().position(|place| *place == step.from) else { return };
        arc.now.swap_remove(seat);
        let others = arc.now.clone();
        arc.now.push(step.to);
        for (place, by) in [(step.from, -1), (step.to, 1)] {
            if let Some(load) = self.loads.get_mut(place) {
                *load += by;
            }
            for other in &others {
                self.count_shared(place, *other, by);
                self.count_shared(*other, place, by);
            }
        }
    }

    fn count_shared(&mut self, place: Place, other: Place, by: i64) {
        if let Some(count) = self.shared.get_mut(place).and_then(|row| row.get_mut(other)) {
            *count += by;
        }
    }
}
