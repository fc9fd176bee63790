//! Layers of unequal shapes.

use crate::model::transformer::{LayerShapes, Model};
use std::sync::Arc;

impl LayerShapes {
    /// Each distinct one of `layers` once, in the order of first appearance; empty if there is only
    /// one.
    fn from_layers(layers: Vec<Model>) -> Self {
        let mut shapes: Vec<Model> = Vec::new();
        let mut of_layer = Vec::with_capacity(layers.len());
        for layer in layers {
            let shape = shapes.iter().position(|shape| *shape == layer).unwrap_or(shapes.len());
            if shape == shapes.len() {
                shapes.push(layer);
            }
            // A model has at most 2¹⁶ layers.
            of_layer.push(shape as u16);
        }
        if shapes.len() < 2 {
            return Self::default();
        }
        // The model has the name.
        shapes.iter_mut().for_each(|shape| shape.name.clear());
        Self { shapes: shapes.into(), of_layer: of_layer.into() }
    }

    /// Whether all layers are alike.
    pub fn is_empty(&self) -> bool {
        self.shapes.is_empty()
    }
}

impl Model {
    /// The same model with these `layers`, one for each of its layers; each describes its layer.
    /// If they are all alike the model itself takes their shape.
    ///
    /// # Panics
    /// There are not as many as the model has layers.
    #[must_use]
    pub fn with_layers(mut self, mut layers: Vec<Model>) -> Self {
        assert_eq!(layers.len() as u64, self.layers, "a shape for each layer");
        for layer in &mut layers {
            layer.shapes = LayerShapes::default();
        }
        let first = layers.first().cloned();
        self.shapes = LayerShapes::from_layers(layers);
        match first {
            Some(first) if self.shapes.is_empty() => first,
            _ => self,
        }
    }

    /// The same model, whose first `dense` layers have a feed-forward network instead of experts.
    #[must_use]
    pub fn with_dense_layers(self, dense: u64) -> Self {
        let layer = |layer: u64| {
            let mut shape = self.layer(layer).clone();
            if layer < dense {
                shape.experts = None;
            }
            shape
        };
        let layers = (0..self.layers).map(layer).collect();
        self.with_layers(layers)
    }

    /// The distinct shapes of its layers; the model itself if all are alike.
    pub fn shapes(&self) -> &[Model] {
        match &self.shapes.shapes[..] {
            [] => std::slice::from_ref(self),
            shapes => shapes,
        }
    }

    /// The index of `layer`'s shape in [`Model::shapes`].
    pub(crate) fn shape_index(&self, layer: u64) -> u16 {
        usize::try_from(layer).ok().and_then(|layer| self.shapes.of_layer.get(layer).copied()).unwrap_or(0)
    }

    /// The shape of `layer`.
    pub fn layer(&self, layer: u64) -> &Model {
        &self.shapes()[usize::from(self.shape_index(layer))]
    }

    /// The shape of `layer`; of the embedding and the head, which are in no layer, the model
    /// itself.
    pub fn layer_or_ends(&self, layer: Option<u32>) -> &Model {
        layer.map_or(self, |layer| self.layer(u64::from(layer)))
    }

    /// The layer whose keys and values `layer` attends to: its own, or where it shares them
    /// ([`crate::Wiring::shares_kv`]) those of the last layer of the same heads and window that has
    /// its own.
    pub fn cache_layer(&self, layer: u64) -> u64 {
        let alike = |shape: &Model| (shape.wiring.window, shape.head_dim, shape.kv_heads);
        let shape = self.layer(layer);
        if !shape.wiring.shares_kv {
            return layer;
        }
        let own = |&earlier: &u64| {
            let earlier = self.layer(earlier);
            !earlier.wiring.shares_kv && alike(earlier) == alike(shape)
        };
        (0..layer).rev().find(own).unwrap_or(layer)
    }

    /// The same model with `change` applied to it and to the shape of each layer.
    #[must_use]
    pub fn map_shapes(&self, change: impl Fn(&Model) -> Model) -> Self {
        let shapes = LayerShapes {
            shapes: self.shapes.shapes.iter().map(&change).collect(),
            of_layer: Arc::clone(&self.shapes.of_layer),
        };
        Self { shapes, ..change(self) }
    }
}
