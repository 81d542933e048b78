//! A field of vectors, in both kinds of indexes.

use mayfly_base::Result;

use crate::limits::MAX_DIMENSIONS;
use crate::read::Fields;

/// The function that compares two vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Similarity {
    /// The angle between the vectors. Zero vectors have none and are not indexed.
    Cosine,
    /// The square of the distance.
    Euclidean,
    /// The scalar product.
    DotProduct,
}

/// The representation that approximate searches compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantization {
    /// The vectors as they are. Large segments have codes that choose candidates, where a sample
    /// shows that codes lose nothing.
    None,
    /// One byte for each dimension. The best candidates are compared again in full precision.
    Scalar,
}

/// The structure that approximate searches use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexingMethod {
    /// A graph in large segments.
    Hnsw,
    /// No graph: every search scans.
    Flat,
}

/// A field of vectors.
#[derive(Clone, Debug, PartialEq)]
pub struct VectorField {
    /// The dotted path.
    pub path: String,
    /// Vectors with another number of dimensions are not indexed.
    pub dimensions: usize,
    /// The function that compares vectors.
    pub similarity: Similarity,
    /// The representation that approximate searches compare.
    pub quantization: Quantization,
    /// The structure that approximate searches use.
    pub method: IndexingMethod,
    /// The most edges of a node in the graph.
    pub max_edges: usize,
    /// The number of candidates that are examined for the edges of a new node.
    pub edge_candidates: usize,
}

const SIMILARITIES: &[(&str, Similarity)] = &[
    ("cosine", Similarity::Cosine),
    ("dotProduct", Similarity::DotProduct),
    ("euclidean", Similarity::Euclidean),
];

const DIMENSIONS: std::ops::RangeInclusive<i64> = 1..=MAX_DIMENSIONS as i64;

/// The default and the greatest number of edges of a node.
const EDGES: (i64, i64) = (16, 64);

/// The default and the greatest number of candidates for edges.
const EDGE_CANDIDATES: (i64, i64) = (100, 3_200);

/// Parses the fields of `vector`, in both kinds of indexes.
pub(super) fn parse(fields: &mut Fields<'_>, path: &str) -> Result<VectorField> {
    let dimensions = fields.whole("numDimensions", DIMENSIONS)?;
    let dimensions = fields.required("numDimensions", dimensions)?;
    let similarity = parse_similarity(fields)?;
    let binary = Err("binary quantization");
    let choices = [
        ("binary", binary),
        ("none", Ok(Quantization::None)),
        ("scalar", Ok(Quantization::Scalar)),
    ];
    let quantization = match fields.choice("quantization", &choices)? {
        None => Quantization::None,
        Some(Ok(quantization)) => quantization,
        Some(Err(what)) => return Err(fields.path_of("quantization").not_supported(what)),
    };
    let methods = [("flat", IndexingMethod::Flat), ("hnsw", IndexingMethod::Hnsw)];
    let method = fields.choice("indexingMethod", &methods)?.unwrap_or(IndexingMethod::Hnsw);
    let (max_edges, edge_candidates) = parse_graph(fields, method)?;
    Ok(VectorField {
        path: path.to_owned(),
        dimensions: dimensions as usize,
        similarity,
        quantization,
        method,
        max_edges,
        edge_candidates,
    })
}

/// Parses the fields of `knnVector`, the older type.
pub(super) fn parse_knn(fields: &mut Fields<'_>, path: &str) -> Result<VectorField> {
    let dimensions = fields.whole("dimensions", DIMENSIONS)?;
    let dimensions = fields.required("dimensions", dimensions)?;
    Ok(VectorField {
        path: path.to_owned(),
        dimensions: dimensions as usize,
        similarity: parse_similarity(fields)?,
        quantization: Quantization::None,
        method: IndexingMethod::Hnsw,
        max_edges: EDGES.0 as usize,
        edge_candidates: EDGE_CANDIDATES.0 as usize,
    })
}

fn parse_similarity(fields: &mut Fields<'_>) -> Result<Similarity> {
    let similarity = fields.choice("similarity", SIMILARITIES)?;
    fields.required("similarity", similarity)
}

fn parse_graph(fields: &mut Fields<'_>, method: IndexingMethod) -> Result<(usize, usize)> {
    let defaults = (EDGES.0 as usize, EDGE_CANDIDATES.0 as usize);
    let Some(document) = fields.document("hnswOptions")? else { return Ok(defaults) };
    if method != IndexingMethod::Hnsw {
        let text = "hnswOptions is only supported with \"indexingMethod: hnsw\".";
        return Err(fields.path().refuse(text));
    }
    let mut options = Fields::new(document, fields.path_of("hnswOptions"))?;
    let edges = options.whole("maxEdges", EDGES.0..=EDGES.1)?.unwrap_or(EDGES.0);
    let candidates = options
        .whole("numEdgeCandidates", EDGE_CANDIDATES.0..=EDGE_CANDIDATES.1)?
        .unwrap_or(EDGE_CANDIDATES.0);
    options.finish()?;
    Ok((edges as usize, candidates as usize))
}
