//! CUDA driver and NVRTC, looked at without ever requiring them.
//!
//! cudarc panics when a library or symbol is missing, so the library is looked for first, and each symbol before it is called.
use cudarc::driver::{result, sys};
use serde::Serialize;

use super::host::{read, read_line};

/// One CUDA device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CudaDevice {
    /// Its name.
    pub name: String,
    /// Compute capability, as `9.0`.
    pub compute_capability: Option<String>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
}

/// A CUDA driver that answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CudaDriver {
    /// CUDA version that the driver supports, as `13.0`.
    pub version: Option<String>,
    /// Devices; may be none.
    pub devices: Vec<CudaDevice>,
}

/// The run-time compiler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Nvrtc {
    /// Its version, as `13.0`.
    pub version: String,
}

/// PCI vendor id of NVIDIA.
const NVIDIA: &str = "0x10de";

/// The CUDA driver and its devices, or why there is none, in a sentence. Never panics.
pub fn cuda_driver() -> Result<CudaDriver, String> {
    // SAFETY: loading libcuda runs its initialisers, which is what every CUDA program does first.
    if !unsafe { sys::is_culib_present() } {
        return Err(why_no_library());
    }
    let needed: [&[u8]; 6] = [
        b"cuInit",
        b"cuDriverGetVersion",
        b"cuDeviceGetCount",
        b"cuDeviceGet",
        b"cuDeviceGetName",
        b"cuDeviceGetAttribute",
    ];
    // SAFETY: the library is there; symbols are only looked up here, not called.
    let missing = needed.into_iter().find(|name| unsafe { sys::culib().get::<unsafe extern "C" fn()>(*name) }.is_err());
    if let Some(name) = missing {
        return Err(format!("libcuda has no `{}`: the driver is too old or damaged", String::from_utf8_lossy(name)));
    }
    result::init().map_err(|error| format!("the CUDA driver does not start: {}", error_name(error)))?;
    let count = result::device::get_count().map_err(|error| format!("no device count: {}", error_name(error)))?;
    let devices = (0..count).map(device).collect::<Result<Vec<_>, _>>().map_err(error_name)?;
    Ok(CudaDriver { version: driver_version(), devices })
}

fn device(ordinal: i32) -> Result<CudaDevice, result::DriverError> {
    use sys::CUdevice_attribute::{
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
    };
    let device = result::device::get(ordinal)?;
    // SAFETY: `device` came from the driver just now.
    let attribute = |which| unsafe { result::device::get_attribute(device, which) }.ok();
    let compute_capability = attribute(MAJOR).zip(attribute(MINOR)).map(|(major, minor)| format!("{major}.{minor}"));
    // SAFETY: as above, and the symbol is looked up before it is called.
    let memory = unsafe {
        let there = sys::culib().get::<unsafe extern "C" fn()>(b"cuDeviceTotalMem_v2").is_ok();
        there.then(|| result::device::total_mem(device)).and_then(Result::ok)
    };
    let memory_bytes = memory.and_then(|bytes| u64::try_from(bytes).ok());
    Ok(CudaDevice { name: result::device::get_name(device)?, compute_capability, memory_bytes })
}

fn driver_version() -> Option<String> {
    let mut version = 0;
    // SAFETY: the symbol was looked up, and the driver writes one int.
    let status = unsafe { sys::cuDriverGetVersion(&mut version) };
    // 13000 is 13.0, 12040 is 12.4.
    (status == sys::CUresult::CUDA_SUCCESS).then(|| format!("{}.{}", version / 1000, version % 1000 / 10))
}

/// The name of the code; its text would need one more symbol of the driver.
fn error_name(error: result::DriverError) -> String {
    format!("{:?}", error.0)
}

/// NVRTC, or why there is none, in a sentence. Never panics.
pub fn nvrtc() -> Result<Nvrtc, String> {
    use cudarc::nvrtc::sys as nvrtc;
    // SAFETY: loading the library runs its initialisers only.
    if !unsafe { nvrtc::is_culib_present() } {
        return Err("no NVRTC library found (libnvrtc.so.13 or .12 in the loader's path)".to_owned());
    }
    // SAFETY: the library is there; the symbol is only looked up.
    if unsafe { nvrtc::culib().get::<unsafe extern "C" fn()>(b"nvrtcVersion") }.is_err() {
        return Err("the NVRTC library has no `nvrtcVersion`".to_owned());
    }
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the symbol is there and writes two ints.
    let status = unsafe { nvrtc::nvrtcVersion(&mut major, &mut minor) };
    if status == nvrtc::nvrtcResult::NVRTC_SUCCESS {
        Ok(Nvrtc { version: format!("{major}.{minor}") })
    } else {
        Err(format!("NVRTC does not answer: {status:?}"))
    }
}

fn why_no_library() -> String {
    let library = "no CUDA driver library (libcuda.so.1) found";
    if read("/proc/driver/nvidia/version").is_some() {
        return format!(
            "{library}, though the NVIDIA kernel module is loaded: inside a container its run time must mount it"
        );
    }
    match nvidia_device_on_bus() {
        Some(true) => format!("{library}; there is an NVIDIA device on the PCI bus, its driver is not installed"),
        Some(false) => format!("{library}, and no NVIDIA device on the PCI bus"),
        None => library.to_owned(),
    }
}

fn nvidia_device_on_bus() -> Option<bool> {
    let devices = std::fs::read_dir("/sys/bus/pci/devices").ok()?;
    Some(devices.filter_map(|d| d.ok()).any(|d| read_line(d.path().join("vendor")).as_deref() == Some(NVIDIA)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_cuda_gets_a_reason_and_no_panic() {
        match cuda_driver() {
            Ok(driver) => assert!(driver.devices.iter().all(|device| !device.name.is_empty())),
            Err(why) => assert!(why.contains("cuda") || why.contains("CUDA"), "{why}"),
        }
        if let Err(why) = nvrtc() {
            assert!(why.contains("NVRTC"), "{why}");
        }
    }
}
