//! Shapes on the sphere: the points, lines and polygons of a GeoJSON object.

use crate::point::{Pair, Point};
use crate::polygon::Polygon;

/// The types of GeoJSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the types' own names")]
pub enum GeoJsonType {
    Point,
    LineString,
    Polygon,
    MultiPoint,
    MultiLineString,
    MultiPolygon,
    GeometryCollection,
}

impl GeoJsonType {
    /// The type with this name.
    pub fn of_name(name: &str) -> Option<GeoJsonType> {
        Some(match name {
            "Point" => GeoJsonType::Point,
            "LineString" => GeoJsonType::LineString,
            "Polygon" => GeoJsonType::Polygon,
            "MultiPoint" => GeoJsonType::MultiPoint,
            "MultiLineString" => GeoJsonType::MultiLineString,
            "MultiPolygon" => GeoJsonType::MultiPolygon,
            "GeometryCollection" => GeoJsonType::GeometryCollection,
            _ => return None,
        })
    }

    /// The name in GeoJSON.
    pub fn name(self) -> &'static str {
        match self {
            GeoJsonType::Point => "Point",
            GeoJsonType::LineString => "LineString",
            GeoJsonType::Polygon => "Polygon",
            GeoJsonType::MultiPoint => "MultiPoint",
            GeoJsonType::MultiLineString => "MultiLineString",
            GeoJsonType::MultiPolygon => "MultiPolygon",
            GeoJsonType::GeometryCollection => "GeometryCollection",
        }
    }
}

/// The shape of a GeoJSON object.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    points: Vec<Point>,
    lines: Vec<Vec<Point>>,
    polygons: Vec<Polygon>,
    /// The coordinates of a single point.
    pair: Option<Pair>,
}

impl Shape {
    /// The shape of a single point.
    pub fn of_pair(pair: Pair) -> Shape {
        Shape { points: vec![pair.to_point()], pair: Some(pair), ..Shape::default() }
    }

    pub(crate) fn of_parts(
        points: Vec<Point>,
        lines: Vec<Vec<Point>>,
        polygons: Vec<Polygon>,
    ) -> Shape {
        Shape { points, lines, polygons, pair: None }
    }

    /// Adds the parts of another shape.
    pub(crate) fn add(&mut self, other: Shape) {
        self.points.extend(other.points);
        self.lines.extend(other.lines);
        self.polygons.extend(other.polygons);
        self.pair = None;
    }

    /// The points that are not part of a line or a polygon.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// Its lines, of at least two points each.
    pub fn lines(&self) -> &[Vec<Point>] {
        &self.lines
    }

    /// The polygons, each with its holes.
    pub fn polygons(&self) -> &[Polygon] {
        &self.polygons
    }

    /// The coordinates, when it is a single point.
    pub fn pair(&self) -> Option<Pair> {
        self.pair
    }

    /// All points, vertices of lines and vertices of polygons.
    pub(crate) fn vertices(&self) -> impl Iterator<Item = &Point> {
        let rings = self.polygons.iter().flat_map(Polygon::loops);
        let corners = rings.flat_map(|ring| ring.vertices());
        self.points.iter().chain(self.lines.iter().flatten()).chain(corners)
    }
}
