//! The device for which each row of a table is predicted: one for all rows, or the one that the row
//! names.

use super::lookup::machine_library;
use crate::error::{Error, OrError, Result};
use hwprofiles::{Device, DeviceKind, Library, Machine, MemoryId, Profile, TableRows, plain_name};
use std::io::BufRead;
use std::path::PathBuf;

/// The devices for which rows are predicted.
#[derive(Debug, Clone, Copy, Default)]
pub struct PredictionOptions<'a> {
    /// A machine or GPU, a folder of GPU files, or nothing where each row names its GPU.
    pub machine: Option<&'a str>,
    /// The device of the machine; its GPU where nothing is said.
    pub device: Option<&'a str>,
    /// The only value of the rows' column `gpu` that is kept.
    pub only: Option<&'a str>,
}

/// The devices of a table's rows, looked up when a row first names them.
#[derive(Debug)]
pub(crate) struct RowDevices {
    /// The table's column `gpu`.
    column: Option<usize>,
    /// As in [`PredictionOptions`], as a plain name.
    only: Option<String>,
    source: DeviceSource,
    /// The devices that rows have named so far; one without a name where there is no column.
    named: Vec<NamedDevice>,
    /// The device of the last row, which is mostly the next row's too.
    last: usize,
}

#[derive(Debug)]
enum DeviceSource {
    /// One device for every row, and the names by which a row may call it.
    One { device: Box<Device>, called: String, names: Vec<String> },
    /// The file or the shipped part that a row names; files are in the folder.
    ByName(Option<PathBuf>),
}

#[derive(Debug)]
struct NamedDevice {
    /// The name as the rows write it.
    cell: Vec<u8>,
    name: String,
    /// `None` where rows with this name are left out.
    device: Option<Device>,
}

impl RowDevices {
    /// The devices of the table `rows`, whose column `gpu` is at index `column`.
    ///
    /// # Errors
    /// There is no such machine, or nothing says for which device a row is.
    pub(crate) fn new(
        options: PredictionOptions<'_>,
        rows: &TableRows<impl BufRead>,
        column: Option<usize>,
    ) -> Result<Self> {
        let folder = options.machine.map(PathBuf::from).filter(|path| path.is_dir());
        let source = match options.machine.filter(|_| folder.is_none()) {
            Some(name) => named_source(name, options.device)?,
            None => DeviceSource::ByName(folder),
        };
        let by_name = matches!(source, DeviceSource::ByName(_));
        if column.is_none() && (by_name || options.only.is_some()) {
            let message = "there is no such column to name each row's GPU; without one name a machine, as \
                           `fulcrum predict h100-sxm --ops …`";
            return Err(Error::input(rows.refuse_header("gpu", message)));
        }
        if let (true, Some(device)) = (by_name, options.device) {
            let message = format!("--device {device} is a device of a machine, and no machine is named");
            return Err(Error::input(message));
        }
        Ok(Self { column, only: options.only.map(plain_name), source, named: Vec::new(), last: 0 })
    }

    /// The device of the row that `rows` stands at, and its index for [`RowDevices::name`]; `None`
    /// where the row is left out.
    pub(crate) fn device_of_row(
        &mut self,
        rows: &TableRows<impl BufRead>,
    ) -> Result<Option<(usize, &Device)>> {
        let cell = self.column.map_or(&[][..], |column| rows.cell(column));
        if self.named.get(self.last).is_none_or(|named| named.cell != cell) {
            let known = self.named.iter().position(|named| named.cell == cell);
            self.last = match known {
                Some(index) => index,
                None => {
                    self.named.push(self.look_up(cell, rows)?);
                    self.named.len() - 1
                }
            };
        }
        Ok(self.named[self.last].device.as_ref().map(|device| (self.last, device)))
    }

    /// The name of the device of that index; empty where the table names none.
    pub(crate) fn name(&self, index: usize) -> &str {
        &self.named[index].name
    }

    fn look_up(&self, cell: &[u8], rows: &TableRows<impl BufRead>) -> Result<NamedDevice> {
        let name = plain_name(&String::from_utf8_lossy(cell));
        let device = match self.column.filter(|_| self.only.as_ref().is_none_or(|only| *only == name)) {
            Some(column) => Some(self.device(&name, column, rows)?),
            None if self.column.is_some() => None,
            None => self.device_of_all_rows(),
        };
        Ok(NamedDevice { cell: cell.to_owned(), name, device })
    }

    fn device_of_all_rows(&self) -> Option<Device> {
        match &self.source {
            DeviceSource::One { device, .. } => Some(Device::clone(device)),
            DeviceSource::ByName(_) => None,
        }
    }

    fn device(&self, name: &str, column: usize, rows: &TableRows<impl BufRead>) -> Result<Device> {
        if name.is_empty() {
            let message = "the cell is empty: every row must name its GPU";
            return Err(Error::input(rows.refuse(column, message)));
        }
        match &self.source {
            DeviceSource::One { device, names, .. }
                if self.only.is_some() || names.iter().any(|it| it == name) =>
            {
                Ok(Device::clone(device))
            }
            DeviceSource::One { called, .. } => {
                let message = format!(
                    "'{}' is not the GPU of '{called}': name no machine to predict each row on its own GPU, or \
                     say `--only {name}` to predict only these rows on '{called}'",
                    rows.shown(column)
                );
                Err(Error::input(rows.refuse(column, message)))
            }
            DeviceSource::ByName(folder) => {
                let (folder, name) = match folder {
                    Some(folder) => (folder.clone(), format!("{name}.yaml")),
                    None => (PathBuf::new(), name.to_owned()),
                };
                let library = Library { folder, ..machine_library() };
                let found = library.profile(&name).map_err(|error| rows.refuse(column, error)).or_input()?;
                match found {
                    Profile::Gpu(part) => Ok(part.device(MemoryId(0))),
                    other => {
                        let message = format!("'{name}' is {}, but a GPU is wanted here", other.kind());
                        Err(Error::input(rows.refuse(column, message)))
                    }
                }
            }
        }
    }
}

/// The device that a machine's or GPU's name stands for.
fn named_source(called: &str, device: Option<&str>) -> Result<DeviceSource> {
    let library = machine_library();
    let source = |device, names: &[&str]| DeviceSource::One {
        device: Box::new(device),
        called: called.to_owned(),
        names: names.iter().copied().map(plain_name).collect(),
    };
    Ok(match library.profile(called).or_input()? {
        Profile::Gpu(part) if device.is_none() => source(part.device(MemoryId(0)), &[called, &part.gpu]),
        Profile::Composition(it) => {
            let gpu = match &it.parts.gpus[..] {
                [one] => one.part.clone(),
                _ => String::new(),
            };
            let machine = library.machine(called).or_input()?;
            source(device_of(&machine, called, device)?, &[called, &gpu])
        }
        _ => {
            let machine = library.machine(called).or_input()?;
            source(device_of(&machine, called, device)?, &[called, &machine.name])
        }
    })
}

/// The device of that name; without one the GPU, or the only device.
fn device_of(machine: &Machine, called: &str, wanted: Option<&str>) -> Result<Device> {
    let devices = || machine.devices.iter();
    let gpus: Vec<_> = devices().filter(|device| device.kind == DeviceKind::Gpu).collect();
    let found = match (wanted, &machine.devices[..], &gpus[..]) {
        (Some(name), ..) => devices().find(|device| device.name == name),
        (None, [device], _) => Some(device),
        (None, _, [device]) => Some(*device),
        (None, ..) => None,
    };
    found.cloned().ok_or_else(|| {
        let names = devices().map(|device| device.name.as_str()).collect::<Vec<_>>().join(", ");
        Error::input(match wanted {
            Some(name) => format!("--device {name}: '{called}' has no such device, but {names}"),
            None => format!("'{called}' has several devices: choose one with --device ({names})"),
        })
    })
}
