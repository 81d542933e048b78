//! Shapes with known results, and random shapes: index results must agree with the predicates.

use mayfly_value::RawValue;
use mayfly_value::bson::doc;
use mayfly_value::extjson::parse_document;
use proptest::prelude::*;

use super::cells::{Ring, covering, ranges};
use super::*;

fn geometry(text: &str) -> Geometry {
    parsed(text).unwrap_or_else(|error| panic!("{text}: {}", error.message()))
}

fn parsed(text: &str) -> mayfly_base::Result<Geometry> {
    let doc = parse_document(&format!("{{loc: {text}}}")).expect(text);
    let element = doc.as_doc().iter().next().expect("a field");
    Geometry::parse(element)
}

fn area(text: &str) -> Area {
    let doc = parse_document(text).expect(text);
    let (shape, ..) = query_geometry(RawValue::Document(doc.as_doc())).expect(text);
    Area::Shape(shape)
}

const SQUARE: &str = "{type: 'Polygon', coordinates: [[[0,0],[10,0],[10,10],[0,10],[0,0]]]}";
const FRAME: &str = "{type: 'Polygon', coordinates: [[[0,0],[10,0],[10,10],[0,10],[0,0]], [[2,2],[8,2],[8,8],[2,8],[2,2]]]}";

#[test]
fn polygons_contain_shapes_inside() {
    let check = |outer: &str, inner: &str, contained: bool, met: bool| {
        let (outer, inner) = (area(outer), geometry(inner));
        assert_eq!((outer.contains(&inner), outer.meets(&inner)), (contained, met), "{inner:?}");
    };
    check(SQUARE, "[5, 5]", true, true);
    check(SQUARE, "[15, 5]", false, false);
    check(SQUARE, "{x: 5, y: 5}", true, true);
    check(FRAME, "[5, 5]", false, false);
    check(FRAME, "[1, 5]", true, true);
    check(FRAME, "{type: 'LineString', coordinates: [[1,1],[9,1]]}", true, true);
    check(FRAME, "{type: 'LineString', coordinates: [[1,5],[9,5]]}", false, true);
    check(FRAME, "{type: 'LineString', coordinates: [[4,5],[6,5]]}", false, false);
    check(SQUARE, "{type: 'Polygon', coordinates: [[[1,1],[2,1],[2,2],[1,1]]]}", true, true);
    check(FRAME, "{type: 'Polygon', coordinates: [[[3,3],[4,3],[4,4],[3,3]]]}", false, false);
    check(FRAME, "{type: 'Polygon', coordinates: [[[1,1],[9,1],[9,9],[1,9],[1,1]]]}", false, true);
    // The hole itself: a common border, but no common interior.
    check(FRAME, "{type: 'Polygon', coordinates: [[[2,2],[8,2],[8,8],[2,8],[2,2]]]}", false, false);
    check(SQUARE, SQUARE, true, true);
    check(FRAME, FRAME, true, true);
    check(SQUARE, FRAME, true, true);
    check(FRAME, SQUARE, false, true);
    // Two adjacent squares.
    check(
        SQUARE,
        "{type: 'Polygon', coordinates: [[[10,0],[20,0],[20,10],[10,10],[10,0]]]}",
        false,
        false,
    );
    check(
        SQUARE,
        "{type: 'Polygon', coordinates: [[[-5,-5],[20,-5],[20,20],[-5,20],[-5,-5]]]}",
        false,
        true,
    );
    check(SQUARE, "{type: 'MultiPoint', coordinates: [[5,5],[15,5]]}", false, true);
    check(SQUARE, "{type: 'MultiPoint', coordinates: [[5,5],[6,5]]}", true, true);
    let all = "{type: 'GeometryCollection', geometries: [{type: 'Point', coordinates: [5,5]}, {type: 'LineString', coordinates: [[1,1],[2,2]]}]}";
    check(SQUARE, all, true, true);
    // The direction of a ring does not matter; the date line and the poles are not special.
    check(
        "{type: 'Polygon', coordinates: [[[0,0],[0,10],[10,10],[10,0],[0,0]]]}",
        "[5, 5]",
        true,
        true,
    );
    let over =
        "{type: 'Polygon', coordinates: [[[170,-10],[-170,-10],[-170,10],[170,10],[170,-10]]]}";
    check(over, "[180, 0]", true, true);
    check(over, "[-175, 5]", true, true);
    check(over, "[0, 0]", false, false);
    let pole = "{type: 'Polygon', coordinates: [[[-120,80],[0,80],[120,80],[-120,80]]]}";
    check(pole, "[0, 90]", true, true);
    check(pole, "[60, 89]", true, true);
    check(pole, "[0, 70]", false, false);
}

#[test]
fn a_strict_winding_takes_the_side_to_the_left() {
    let crs =
        "crs: {type: 'name', properties: {name: 'urn:x-mongodb:crs:strictwinding:EPSG:4326'}}";
    let left =
        format!("{{type: 'Polygon', coordinates: [[[0,0],[10,0],[10,10],[0,10],[0,0]]], {crs}}}");
    let right =
        format!("{{type: 'Polygon', coordinates: [[[0,0],[0,10],[10,10],[10,0],[0,0]]], {crs}}}");
    assert!(area(&left).contains(&geometry("[5, 5]")));
    assert!(!area(&right).contains(&geometry("[5, 5]")));
    assert!(area(&right).contains(&geometry("[-50, -50]")));
    assert!(area(&right).contains(&geometry(
        "{type: 'Polygon', coordinates: [[[20,20],[21,20],[21,21],[20,20]]]}"
    )));
    assert!(!area(&left).contains(&geometry(&left)), "documents of that system never match");
}

#[test]
fn distances() {
    let metres = |text: &str, at: (f64, f64)| {
        geometry(text).angle_to(&Pair { x: at.0, y: at.1 }.to_point()).unwrap() * EARTH_RADIUS_M
    };
    let degree = EARTH_RADIUS_M * std::f64::consts::PI / 180.0;
    assert!((metres("[1, 0]", (0.0, 0.0)) - degree).abs() < 1e-6);
    assert!((metres(SQUARE, (5.0, -1.0)) - degree).abs() < 1e-6);
    assert_eq!(metres(SQUARE, (5.0, 5.0)), 0.0);
    assert!(
        (metres("{type: 'LineString', coordinates: [[0,0],[10,0]]}", (5.0, 2.0)) - 2.0 * degree)
            .abs()
            < 1e-6
    );
    assert!(
        (metres("{type: 'LineString', coordinates: [[0,0],[10,0]]}", (-1.0, 0.0)) - degree).abs()
            < 1e-6
    );
    assert!((metres("[180, 0]", (0.0, 0.0)) - 180.0 * degree).abs() < 1e-6);
}

#[test]
fn circles() {
    let cap = |x, y, radius: f64| Area::Cap(Cap { centre: Pair { x, y }, radius });
    assert!(cap(0.0, 0.0, 0.1).contains(&geometry("[5, 0]")));
    assert!(!cap(0.0, 0.0, 0.08).contains(&geometry("[5, 0]")));
    assert!(cap(0.0, 0.0, 0.0).contains(&geometry("[0, 0]")));
    assert!(cap(5.0, 5.0, 0.2).contains(&geometry(SQUARE)));
    assert!(!cap(5.0, 5.0, 0.1).contains(&geometry(SQUARE)));
    assert!(cap(0.0, 0.0, 4.0).contains(&geometry("[180, 0]")));
    // All corners are within a large circle, but not all of the polygon.
    assert!(!cap(-175.0, -5.0, 3.1).contains(&geometry(
        "{type: 'Polygon', coordinates: [[[0,0],[10,0],[10,10],[0,10],[0,0]]]}"
    )));
}

#[test]
fn invalid_geometries_have_errors() {
    let cases = [
        ("5", "geo element must be an array or object: loc: 5"),
        ("['a', 1]", "Point must only contain numeric elements, instead got type string"),
        ("[1]", "Point must only contain numeric elements, instead got type missing"),
        (
            "{type: 'Point', coordinates: [200, 5]}",
            "Longitude/latitude is out of bounds, lng: 200 lat: 5",
        ),
        (
            "{type: 'Blob', coordinates: []}",
            "unknown GeoJSON type: { type: \"Blob\", coordinates: [] }",
        ),
        (
            "{type: 'LineString', coordinates: [[1,1],[1,1]]}",
            "GeoJSON LineString must have at least 2 vertices: [ [ 1, 1 ], [ 1, 1 ] ]",
        ),
        (
            "{type: 'Polygon', coordinates: [[[0,0],[1,0],[1,1]]]}",
            "Loop is not closed, first vertex does not equal last vertex: [ [ 0, 0 ], [ 1, 0 ], [ 1, 1 ] ]",
        ),
        (
            "{type: 'Polygon', coordinates: [[[0,0],[1,0],[0,0]]]}",
            "Loop must have at least 3 different vertices, 2 unique vertices were provided: [ [ 0, 0 ], [ 1, 0 ], [ 0, 0 ] ]",
        ),
        ("{type: 'Polygon', coordinates: []}", "Polygon has no loops."),
        (
            "{type: 'MultiPoint', coordinates: []}",
            "MultiPoint coordinates must have at least 1 element",
        ),
        (
            "{type: 'GeometryCollection', geometries: []}",
            "GeometryCollection geometries must have at least 1 element",
        ),
        (
            "{type: 'Point', coordinates: [0,0], crs: {type: 'name', properties: {name: 'x'}}}",
            "Unknown CRS name: x",
        ),
    ];
    for (value, text) in cases {
        assert_eq!(parsed(value).unwrap_err().message(), text, "{value}");
    }
    let begins = [
        (
            "{type: 'Polygon', coordinates: [[[0,0],[1,1],[1,0],[0,1],[0,0]]]}",
            "Edges 0 and 2 cross. Edge locations in degrees: [0.0000000, 0.0000000]-[1.0000000, 1.0000000]",
        ),
        (
            "{type: 'Polygon', coordinates: [[[0,0],[1,1],[2,0],[1,1],[1,2],[0,0]]]}",
            "Duplicate vertices: 1 and 3",
        ),
        (
            "{type: 'Polygon', coordinates: [[[0,0],[9,0],[9,9],[0,0]],[[20,20],[21,20],[21,21],[20,20]]]}",
            "Secondary loops not contained by first exterior loop",
        ),
    ];
    for (value, text) in begins {
        let error = parsed(value).unwrap_err();
        assert!(error.message().contains(text), "{}", error.message());
    }
}

#[test]
fn squares_of_the_plane() {
    let grid = Grid::default();
    assert_eq!(grid.number(Pair { x: -180.0, y: -180.0 }).unwrap(), 0);
    let error = grid.number(Pair { x: 181.0, y: 5.0 }).unwrap_err();
    assert_eq!(
        error.message(),
        "point not in interval of [ -180, 180 ] :: caused by :: { 0: 181.0, 1: 5.0 }"
    );
    let triangle = FlatShape::Polygon(vec![
        Pair { x: 0.0, y: 0.0 },
        Pair { x: 4.0, y: 0.0 },
        Pair { x: 0.0, y: 4.0 },
    ]);
    for (x, y, inside) in [
        (1.0, 1.0, true),
        (2.0, 2.0, true),
        (0.0, 0.0, true),
        (2.1, 2.0, false),
        (-0.1, 1.0, false),
    ] {
        assert_eq!(triangle.contains(Pair { x, y }), inside, "{x} {y}");
    }
}

fn pairs() -> impl Strategy<Value = Pair> {
    // Round numbers are on borders of cells, and coincide.
    let round = (-18i32..=18, -9i32..=9)
        .prop_map(|(x, y)| Pair { x: f64::from(x * 10), y: f64::from(y * 10) });
    let any = (-180.0..=180.0, -90.0..=90.0).prop_map(|(x, y)| Pair { x, y });
    let near = (-5i32..=5, -5i32..=5).prop_map(|(x, y)| Pair { x: f64::from(x), y: f64::from(y) });
    prop_oneof![round, any, near]
}

fn position(pair: &Pair) -> String {
    format!("[{:?}, {:?}]", pair.x, pair.y)
}

fn shapes() -> impl Strategy<Value = String> {
    let point = pairs().prop_map(|pair| position(&pair));
    let line = prop::collection::vec(pairs(), 2..4).prop_map(|line| {
        let line: Vec<String> = line.iter().map(position).collect();
        format!("{{type: 'LineString', coordinates: [{}]}}", line.join(","))
    });
    let ring = prop::collection::vec(pairs(), 3..6).prop_map(|mut ring| {
        ring.push(ring[0]);
        let ring: Vec<String> = ring.iter().map(position).collect();
        format!("{{type: 'Polygon', coordinates: [[{}]]}}", ring.join(","))
    });
    let square = (pairs(), 0.001..20.0f64).prop_map(|(Pair { x, y }, size)| {
        let (x2, y2) = ((x + size).min(180.0), (y + size).min(90.0));
        format!("{{type: 'Polygon', coordinates: [[[{x:?},{y:?}],[{x2:?},{y:?}],[{x2:?},{y2:?}],[{x:?},{y2:?}],[{x:?},{y:?}]]]}}")
    });
    prop_oneof![2 => point, 1 => line, 1 => ring, 3 => square]
}

fn found(cells: &[i64], ranges: &[CellRange]) -> bool {
    cells.iter().any(|cell| ranges.iter().any(|range| range.first <= *cell && *cell <= range.last))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn an_index_agrees_with_the_predicates(outer in shapes(), inner in shapes()) {
        if let (Ok(outer), Ok(inner)) = (parsed(&outer), parsed(&inner)) {
            let (Some(shape), Some(other)) = (outer.shape(), inner.shape()) else { return Ok(()) };
            let area = Area::Shape(shape.clone());
            let (contains, meets) = (area.contains(&inner), area.meets(&inner));
            prop_assert!(!contains || meets || !inner.shape().unwrap().lines().is_empty());
            let found = found(&index_cells(other), &area.cell_ranges().unwrap());
            prop_assert!(found || !(contains || meets));
        }
    }

    #[test]
    fn shapes_agree_with_their_points(one in shapes(), two in shapes(), points in prop::collection::vec(pairs(), 12)) {
        let texts = [&one, &two].map(|text| text.replace(' ', ""));
        if let (Ok(one), Ok(two)) = (parsed(&one), parsed(&two)) {
            let area = |geometry: &Geometry| Area::Shape(geometry.shape().unwrap().clone());
            let (a, b) = (area(&one), area(&two));
            let (contains, meets) = (a.contains(&two), a.meets(&two));
            for pair in points {
                let corner = position(&pair).replace(' ', "");
                let is_corner = texts.iter().all(|text| text.contains(&corner));
                let point = Geometry::of_pair(pair);
                let (in_a, in_b) = (a.contains(&point), b.contains(&point));
                prop_assert!(!(contains && in_b && !in_a));
                // A pole is on the borders of all squares that reach it, and polygons that share
                // only a point of their borders, such as a corner, do not meet.
                let is_pole = pair.y.abs() == 90.0;
                prop_assert!(meets || is_pole || is_corner || !(in_a && in_b));
            }
        }
    }

    #[test]
    fn meeting_goes_both_ways(one in shapes(), two in shapes()) {
        if let (Ok(one), Ok(two)) = (parsed(&one), parsed(&two)) {
            let there = Area::Shape(one.shape().unwrap().clone()).meets(&two);
            let back = Area::Shape(two.shape().unwrap().clone()).meets(&one);
            prop_assert_eq!(there, back);
        }
    }

    #[test]
    fn rings_contain_points_at_their_distance(centre in pairs(), shape in shapes(), inner in 0.0..3.0f64, width in 0.0..1.0f64) {
        if let Ok(geometry) = parsed(&shape) {
            let centre = centre.to_point();
            let distance = geometry.angle_to(&centre).unwrap();
            let ring = Ring { centre, inner, outer: inner + width };
            let cells = covering(&ring, 20);
            if ring.inner <= distance && distance <= ring.outer {
                prop_assert!(found(&index_cells(geometry.shape().unwrap()), &ranges(&cells)));
            }
        }
    }

    #[test]
    fn squares_contain_their_points(corners in prop::collection::vec(pairs(), 3..6), point in pairs(), radius in 0.0..90.0f64, bits in 1u32..=32) {
        let grid = Grid { bits, ..Grid::default() };
        let shapes = [
            FlatShape::between(corners[0], corners[1]),
            FlatShape::Disc { centre: corners[0], radius },
            FlatShape::Polygon(corners.clone()),
        ];
        let number = grid.number(point).unwrap();
        for shape in &shapes {
            let ranges = grid.covering(shape);
            let found = ranges.iter().any(|range| range.first <= number && number <= range.last);
            prop_assert!(found || !shape.contains(point));
        }
        let cap = Cap { centre: corners[0], radius: radius.to_radians() };
        let ranges = Area::Cap(cap).grid_ranges(&grid).unwrap();
        let found = ranges.iter().any(|range| range.first <= number && number <= range.last);
        prop_assert!(found || !Area::Cap(cap).contains(&Geometry::of_pair(point)));
    }

    #[test]
    fn nothing_panics(value in mayfly_value::arbitrary::any_value(), numbers in prop::collection::vec(any::<f64>(), 8)) {
        let _ = Geometry::of_value(value.as_raw());
        let doc = doc! { "type": "Polygon", "coordinates": [[[numbers[0], numbers[1]], [numbers[2], numbers[3]],
            [numbers[4], numbers[5]], [numbers[0], numbers[1]]]] };
        let doc = mayfly_value::DocBuf::from_bson(&doc);
        let _ = Geometry::of_value(RawValue::Document(doc.as_doc()));
        let pair = Pair { x: numbers[6], y: numbers[7] };
        let _ = Grid::default().number(pair);
        let disc = FlatShape::Disc { centre: pair, radius: numbers[0].abs() };
        let _ = (Grid::default().covering(&disc), disc.contains(Pair { x: numbers[1], y: numbers[2] }));
        let degrees = |at: usize, most: f64| if numbers[at].is_finite() { numbers[at] % most } else { most };
        let at = |x, y| Pair { x: degrees(x, 180.0), y: degrees(y, 90.0) };
        let ring = [at(0, 1), at(2, 3), at(4, 5), at(6, 7), at(0, 1)];
        let ring: Vec<String> = ring.iter().map(position).collect();
        if let Ok(polygon) = parsed(&format!("{{type: 'Polygon', coordinates: [[{}]]}}", ring.join(","))) {
            let _ = Area::Shape(polygon.shape().unwrap().clone()).cell_ranges();
        }
    }
}

/// A star whose long edges are close to each other: all pairs are visited, until the operation must
/// end.
#[test]
fn visiting_edges_is_work() {
    use mayfly_base::{ErrorCode, ManualClock};
    use mayfly_work::OpCtx;
    use mayfly_work::current::{Current, enter};
    use std::sync::Arc;

    let corner = |at: usize| {
        let angle = std::f64::consts::TAU * (at % 400) as f64 / 400.0;
        let radius = if at.is_multiple_of(2) { 5.0 } else { 10.0 };
        format!("[{}, {}]", radius * angle.cos(), radius * angle.sin())
    };
    let ring = (0..=400).map(corner).collect::<Vec<_>>().join(", ");
    let star = format!("{{type: 'Polygon', coordinates: [[{ring}]]}}");
    geometry(&star);
    let op = OpCtx::detached(Arc::new(ManualClock::at_ms(0)));
    op.kill(ErrorCode::Interrupted);
    let _entered = enter(Current { op: Some(op) });
    geometry(SQUARE);
    assert_eq!(parsed(&star).unwrap_err().code(), ErrorCode::Interrupted);
}
