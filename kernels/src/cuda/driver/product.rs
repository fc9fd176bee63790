//! Matrix products by cuBLASLt.

use super::context::GpuStream;
use super::result::gpu_result;
use crate::runtime::KernelError;
use cudarc::cublaslt::result::{self, CublasError};
use cudarc::cublaslt::sys;
use cudarc::cublaslt::sys::cublasLtMatmulDescAttributes_t as Attribute;
use cudarc::cublaslt::sys::cublasLtMatmulPreferenceAttributes_t as Preferred;
use hwprofiles::DType;
use std::ffi::c_void;

/// The alignment that cuBLASLt prefers for its operands.
pub(in crate::cuda) const ALIGN: usize = 256;

/// The most bytes that cuBLASLt may use besides the operands: its advice for Hopper.
pub(in crate::cuda) const WORKSPACE: usize = 32 << 20;

/// The bytes that cuBLASLt may use for m × n sums over k products, at most [`WORKSPACE`]: each sum
/// in f32, in up to sixteen parts of at least 256 products.
pub(in crate::cuda) fn workspace(m: usize, n: usize, k: usize) -> usize {
    (size_of::<f32>() * m * n * k.div_ceil(256).min(16)).min(WORKSPACE).next_multiple_of(ALIGN)
}

/// The library's handle.
#[derive(Debug)]
pub(in crate::cuda) struct Blas(sys::cublasLtHandle_t);

// SAFETY: several threads may call cuBLASLt's functions with one handle.
unsafe impl Send for Blas {}
// SAFETY: as above.
unsafe impl Sync for Blas {}

impl Blas {
    /// Opens the library for the current context. The error is the reason for which products are
    /// missing.
    pub fn open() -> Result<Self, String> {
        // SAFETY: loading these libraries runs no initialisers that affect this process.
        if !unsafe { sys::is_culib_present() } {
            let advice = "install it and name its folder in LD_LIBRARY_PATH";
            return Err(format!("libcublasLt.so.13 or .12 was not found: {advice}"));
        }
        let advice = "is it of a newer CUDA than the driver?";
        result::create_handle()
            .map(Self)
            .map_err(|error| format!("libcublasLt does not start ({error}): {advice}"))
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        // SAFETY: `open` created it, and it is not used afterwards.
        let _ = unsafe { result::destroy_handle(self.0) };
    }
}

/// How a number format is multiplied.
#[derive(Debug, Clone, Copy)]
struct MatmulFormat {
    operand: sys::cudaDataType,
    result: sys::cudaDataType,
    sum: sys::cublasComputeType_t,
    scale: sys::cudaDataType,
    /// Whether sums may be kept in fewer bits, as inference engines do for `fp8`.
    fast_sum: bool,
}

/// Bytes of an element of an operand and of the result; `None` for formats that cuBLASLt does not
/// multiply here.
pub(in crate::cuda) fn sizes(dtype: DType) -> Option<(usize, usize)> {
    match dtype {
        DType::Bf16 | DType::F16 => Some((2, 2)),
        DType::Fp8 => Some((1, 2)),
        DType::Int8 => Some((1, 4)),
        _ => None,
    }
}

fn format(dtype: DType) -> Option<MatmulFormat> {
    use sys::cublasComputeType_t::{CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32I};
    use sys::cudaDataType_t::{CUDA_R_8F_E4M3, CUDA_R_8I, CUDA_R_16BF, CUDA_R_16F, CUDA_R_32F, CUDA_R_32I};
    let float = |operand, result| MatmulFormat {
        operand,
        result,
        sum: CUBLAS_COMPUTE_32F,
        scale: CUDA_R_32F,
        fast_sum: false,
    };
    match dtype {
        DType::Bf16 => Some(float(CUDA_R_16BF, CUDA_R_16BF)),
        DType::F16 => Some(float(CUDA_R_16F, CUDA_R_16F)),
        DType::Fp8 => Some(MatmulFormat { fast_sum: true, ..float(CUDA_R_8F_E4M3, CUDA_R_16BF) }),
        DType::Int8 => Some(MatmulFormat {
            operand: CUDA_R_8I,
            result: CUDA_R_32I,
            sum: CUBLAS_COMPUTE_32I,
            scale: CUDA_R_32I,
            fast_sum: false,
        }),
        _ => None,
    }
}

/// y[m, n] = x[m, k] · W[n, k]ᵀ with the algorithm that cuBLASLt's heuristic picks, as frameworks
/// use it.
#[derive(Debug)]
pub(in crate::cuda) struct BlasProduct {
    description: MatmulDescription,
    w: MatrixLayout,
    x: MatrixLayout,
    y: MatrixLayout,
    algorithm: sys::cublasLtMatmulAlgo_t,
    /// Bytes of workspace.
    workspace: usize,
    integer: bool,
}

// SAFETY: what it describes never changes and belongs to no thread.
unsafe impl Send for BlasProduct {}

/// The shape of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::cuda) struct ProductShape {
    /// The format of both operands.
    pub dtype: DType,
    /// Rows of x.
    pub m: u64,
    /// Rows of W.
    pub n: u64,
    /// Columns of both.
    pub k: u64,
    /// The distance of y's rows.
    pub y_stride: u64,
    /// Whether y is f32, which only products of 16-bit floats support.
    pub wide: bool,
    /// The alignments of the addresses of W, x and y, each at most 256.
    pub align: [u32; 3],
}

impl BlasProduct {
    /// Prepares a product whose operands all start at multiples of 256 bytes, with y without gaps.
    pub fn new(blas: &Blas, dtype: DType, m: u64, n: u64, k: u64) -> Result<Self, KernelError> {
        Self::prepare(blas, ProductShape { dtype, m, n, k, y_stride: n, wide: false, align: [256; 3] })
    }

    /// Prepares a product.
    pub fn prepare(blas: &Blas, shape: ProductShape) -> Result<Self, KernelError> {
        let ProductShape { dtype, m, n, k, .. } = shape;
        let what = || format!("a product of {m} × {n} × {k} in {dtype}");
        let unknown = || KernelError::Gpu { what: what(), reason: "use bf16, f16, fp8 or int8".to_owned() };
        let mut format = format(dtype).ok_or_else(unknown)?;
        if shape.wide {
            format.result = sys::cudaDataType_t::CUDA_R_32F;
        }
        let describe = || -> Result<Self, CublasError> {
            // cuBLASLt stores matrices by columns. Our W[n, k] is its A[k, n] transposed, x[m, k]
            // is its B[k, m], and y[m, n] is its D[n, m]. That is also the only order in which it
            // multiplies 8-bit formats.
            let description = MatmulDescription::new(format)?;
            let (w, x) =
                (MatrixLayout::new(format.operand, k, n, k)?, MatrixLayout::new(format.operand, k, m, k)?);
            let y = MatrixLayout::new(format.result, n, m, shape.y_stride)?;
            let workspace = workspace(m as usize, n as usize, k as usize);
            let preference = MatmulPreference::new(shape.align, workspace)?;
            // SAFETY: all handles are live.
            let found = unsafe {
                result::get_matmul_algo_heuristic(blas.0, description.0, w.0, x.0, y.0, y.0, preference.0)
            }?;
            let integer = format.scale == sys::cudaDataType_t::CUDA_R_32I;
            Ok(Self { description, w, x, y, algorithm: found.algo, workspace, integer })
        };
        gpu_result(what(), describe())
    }

    /// Enqueues the product, with the addresses of W, x, y and the workspace.
    ///
    /// # Safety
    /// The addresses are of device memory that holds the operands of this shape and [`workspace`]
    /// bytes. The memory stays allocated, and nobody else writes y or the workspace, until the
    /// stream's work is done.
    pub unsafe fn enqueue(
        &self,
        blas: &Blas,
        [w, x, y, workspace]: [u64; 4],
        stream: &GpuStream,
    ) -> Result<(), KernelError> {
        let address = |at: u64| at as *mut c_void;
        let (one, zero, one_integer, zero_integer) = (1f32, 0f32, 1i32, 0i32);
        let (alpha, beta): (*const c_void, *const c_void) = match self.integer {
            true => ((&raw const one_integer).cast(), (&raw const zero_integer).cast()),
            false => ((&raw const one).cast(), (&raw const zero).cast()),
        };
        // SAFETY: all handles are live. alpha and beta have the scale type and are read before the
        // call returns. The ranges are there by the caller's promise. y is both C, which β = 0
        // leaves unread, and D.
        let enqueued = unsafe {
            result::matmul(
                blas.0,
                self.description.0,
                alpha,
                beta,
                address(w),
                self.w.0,
                address(x),
                self.x.0,
                address(y),
                self.y.0,
                address(y),
                self.y.0,
                &self.algorithm,
                address(workspace),
                self.workspace,
                stream.raw().cast(),
            )
        };
        gpu_result("a product", enqueued)
    }
}

#[derive(Debug)]
struct MatmulDescription(sys::cublasLtMatmulDesc_t);

impl MatmulDescription {
    /// A is transposed, B is not.
    fn new(format: MatmulFormat) -> Result<Self, CublasError> {
        let description = Self(result::create_matmul_desc(format.sum, format.scale)?);
        // CUBLAS_OP_T is a C enum of four bytes; the flag is one byte.
        let (transposed, fast) = (1i32, 1i8);
        let set = |which, value: *const c_void, size| {
            // SAFETY: the description is live; the attribute has `size` bytes, which are copied
            // before the call returns.
            unsafe { result::set_matmul_desc_attribute(description.0, which, value, size) }
        };
        set(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, (&raw const transposed).cast(), 4)?;
        if format.fast_sum {
            set(Attribute::CUBLASLT_MATMUL_DESC_FAST_ACCUM, (&raw const fast).cast(), 1)?;
        }
        Ok(description)
    }
}

impl Drop for MatmulDescription {
    fn drop(&mut self) {
        // SAFETY: `new` created it, and it is not used afterwards.
        let _ = unsafe { result::destroy_matmul_desc(self.0) };
    }
}

#[derive(Debug)]
struct MatrixLayout(sys::cublasLtMatrixLayout_t);

impl MatrixLayout {
    /// `rows` × `columns`, stored by columns that lie `stride` apart.
    fn new(of: sys::cudaDataType, rows: u64, columns: u64, stride: u64) -> Result<Self, CublasError> {
        result::create_matrix_layout(of, rows, columns, stride as i64).map(Self)
    }
}

impl Drop for MatrixLayout {
    fn drop(&mut self) {
        // SAFETY: `new` created it, and it is not used afterwards.
        let _ = unsafe { result::destroy_matrix_layout(self.0) };
    }
}

#[derive(Debug)]
struct MatmulPreference(sys::cublasLtMatmulPreference_t);

impl MatmulPreference {
    /// At most `workspace` bytes, and addresses of W, x and y that are multiples of these.
    fn new([w, x, y]: [u32; 3], workspace: usize) -> Result<Self, CublasError> {
        let preference = Self(result::create_matmul_pref()?);
        let set = |which, value: *const c_void, size| {
            // SAFETY: the preference is live; the attribute has `size` bytes, which are copied
            // before the call returns.
            unsafe { result::set_matmul_pref_attribute(preference.0, which, value, size) }
        };
        set(Preferred::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, (&raw const workspace).cast(), 8)?;
        // C is the same matrix as D, so both have the same alignment.
        for (which, align) in [
            (Preferred::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, w),
            (Preferred::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, x),
            (Preferred::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, y),
            (Preferred::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, y),
        ] {
            set(which, (&raw const align).cast(), 4)?;
        }
        Ok(preference)
    }
}

impl Drop for MatmulPreference {
    fn drop(&mut self) {
        // SAFETY: `new` created it, and it is not used afterwards.
        let _ = unsafe { result::destroy_matmul_pref(self.0) };
    }
}
