//! Cycles of dependencies.
//!
//! Under snapshot isolation each transaction has a time of its reads and a later time of its
//! commit. The edges "wrote before" (ww), "was read by" (wr) and "ended before" lead from a commit
//! to a later beginning or commit; the edge "read what the other overwrote" (rw) leads from a
//! beginning to a later commit. Every cycle therefore has two consecutive rw edges (Fekete and
//! others, "Making Snapshot Isolation Serializable", 2005). To find a cycle without them, the graph
//! has each transaction twice: as reached by an rw edge, which no other rw edge may follow, and as
//! reached by any other edge.

/// The transactions and their dependencies.
pub(super) struct Graph {
    transactions: usize,
    /// Nodes beyond the transactions are points in time.
    edges: Vec<Vec<Edge>>,
}

#[derive(Clone, Copy)]
struct Edge {
    to: usize,
    why: &'static str,
    overwritten: bool,
}

impl Graph {
    pub(super) fn new(transactions: usize) -> Graph {
        Graph { transactions, edges: vec![Vec::new(); transactions] }
    }

    pub(super) fn before(&mut self, from: usize, to: usize, why: &'static str) {
        self.add(from, Edge { to, why, overwritten: false });
    }

    pub(super) fn overwritten(&mut self, reader: usize, writer: usize) {
        let why = "read what was overwritten by";
        self.add(reader, Edge { to: writer, why, overwritten: true });
    }

    fn add(&mut self, from: usize, edge: Edge) {
        if from != edge.to {
            self.edges[from].push(edge);
        }
    }

    /// Adds the edges "ended before", given the beginning and the end of each transaction.
    pub(super) fn real_time(&mut self, spans: impl Iterator<Item = (u64, Option<u64>)>) {
        let spans: Vec<_> = spans.collect();
        let mut ends: Vec<(u64, usize)> = Vec::new();
        ends.extend(spans.iter().enumerate().filter_map(|(at, (_, end))| end.map(|end| (end, at))));
        ends.sort_unstable();
        // A chain of points in time, one for each end.
        let first = self.edges.len();
        self.edges.resize(first + ends.len(), Vec::new());
        for (point, (_, ended)) in ends.iter().enumerate() {
            self.before(*ended, first + point, "ended before");
            if point > 0 {
                self.before(first + point - 1, first + point, "then");
            }
        }
        for (at, (begin, _)) in spans.iter().enumerate() {
            let earlier = ends.partition_point(|(end, _)| end < begin);
            if earlier > 0 {
                self.before(first + earlier - 1, at, "began");
            }
        }
    }

    /// One cycle without two consecutive rw edges for each strongly connected component, as text.
    pub(super) fn circles(&self) -> Vec<String> {
        let knots = self.knots();
        let mut size = vec![0usize; self.edges.len() * 2];
        knots.iter().for_each(|knot| size[*knot] += 1);
        let mut told = vec![false; size.len()];
        let mut circles = Vec::new();
        for node in 0..knots.len() {
            let knot = knots[node];
            if size[knot] > 1 && !told[knot] {
                told[knot] = true;
                circles.push(self.circle(node, &knots));
            }
        }
        circles
    }

    /// The edges that may follow at a node of the doubled graph.
    fn next(&self, node: usize) -> impl Iterator<Item = (usize, Edge)> {
        let (transaction, overwritten) = (node / 2, node % 2 == 1);
        let edges = self.edges[transaction].iter();
        edges
            .filter(move |edge| !(overwritten && edge.overwritten))
            .map(|edge| (edge.to * 2 + usize::from(edge.overwritten), *edge))
    }

    /// The strongly connected component of each node (Tarjan, without recursion).
    fn knots(&self) -> Vec<usize> {
        const NEW: usize = usize::MAX;
        let nodes = self.edges.len() * 2;
        let (mut order, mut low) = (vec![NEW; nodes], vec![0; nodes]);
        let (mut knots, mut on_stack) = (vec![NEW; nodes], vec![false; nodes]);
        let (mut stack, mut counter, mut found) = (Vec::new(), 0, 0);
        for root in 0..nodes {
            if order[root] != NEW {
                continue;
            }
            let mut calls: Vec<(usize, usize)> = vec![(root, 0)];
            while let Some((node, done)) = calls.last_mut() {
                let node = *node;
                if *done == 0 {
                    (order[node], low[node]) = (counter, counter);
                    counter += 1;
                    stack.push(node);
                    on_stack[node] = true;
                }
                let next = self.next(node).nth(*done).map(|(next, _)| next);
                *done += 1;
                match next {
                    Some(next) if order[next] == NEW => calls.push((next, 0)),
                    Some(next) if on_stack[next] => low[node] = low[node].min(order[next]),
                    Some(_) => {}
                    None => {
                        if low[node] == order[node] {
                            while let Some(member) = stack.pop() {
                                on_stack[member] = false;
                                knots[member] = found;
                                if member == node {
                                    break;
                                }
                            }
                            found += 1;
                        }
                        calls.pop();
                        if let Some((parent, _)) = calls.last() {
                            low[*parent] = low[*parent].min(low[node]);
                        }
                    }
                }
            }
        }
        knots
    }

    /// The shortest cycle through a node within its component.
    fn circle(&self, start: usize, knots: &[usize]) -> String {
        let mut came_by: Vec<Option<(usize, Edge)>> = vec![None; self.edges.len() * 2];
        let mut queue = std::collections::VecDeque::from([start]);
        while let Some(node) = queue.pop_front() {
            for (next, edge) in self.next(node) {
                if knots[next] == knots[start] && came_by[next].is_none() {
                    came_by[next] = Some((node, edge));
                    queue.push_back(next);
                }
            }
        }
        let mut steps = Vec::new();
        let mut node = start;
        while let Some((from, edge)) = came_by[node] {
            let name = |at: usize| match at < self.transactions {
                true => format!("transaction {at}"),
                false => format!("point {}", at - self.transactions),
            };
            steps.push(format!("{} {} {}", name(from / 2), edge.why, name(edge.to)));
            node = from;
            if node == start || steps.len() > 100 {
                break;
            }
        }
        steps.reverse();
        steps.join("; ")
    }
}
