//! Chromium without a window, driven by the DevTools protocol over two pipes.

use std::{
    env,
    fs::{self, File},
    io::{self, BufRead as _, BufReader, Write as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

/// How long anything is waited for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A browser with one open page. It is killed when dropped.
pub(crate) struct Browser {
    process: Child,
    commands: ChildStdin,
    messages: Receiver<Value>,
    /// Page to which commands go, once it exists.
    session: Option<String>,
    last: u64,
    errors: Vec<String>,
    requests: Vec<String>,
    folder: tempfile::TempDir,
}

/// Shell command that starts a browser. The browser speaks the protocol on the descriptors 3 and 4.
const EXEC: &str = "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null";

const ARGUMENTS: [&str; 9] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
    "about:blank",
];

impl Browser {
    /// Starts the browser; `None` if no Chromium is installed, which it reports. If FIREBRICK_CI is set, a test
    /// without a browser fails.
    pub(crate) fn start() -> Option<Self> {
        match program() {
            Some(program) => Some(Self::spawn(&program)),
            None if env::var_os("FIREBRICK_CI").is_some() => {
                panic!("no Chromium reads the page: apt-get install chromium")
            }
            None => {
                let _ = writeln!(
                    io::stderr(),
                    "SKIPPED: no Chromium reads the page (apt-get install chromium)"
                );
                None
            }
        }
    }

    fn spawn(program: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let profile = format!("--user-data-dir={}", folder.path().join("profile").display());
        let mut command = Command::new("sh");
        command.arg("-c").arg(EXEC).arg(program).arg(profile).args(ARGUMENTS);
        // The browser's files go with the folder, and all its processes end with their group.
        command.env("TMPDIR", folder.path()).env("HOME", folder.path()).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(File::create(folder.path().join("said")).unwrap());
        let mut process = command.spawn().unwrap();

        let commands = process.stdin.take().unwrap();
        let mut answers = BufReader::new(process.stdout.take().unwrap());
        let (send, messages) = channel();
        thread::spawn(move || {
            let mut bytes = Vec::new();
            while answers.read_until(0, &mut bytes).is_ok() && bytes.pop() == Some(0) {
                let sent = send.send(serde_json::from_slice(&bytes).unwrap());
                if sent.is_err() {
                    return;
                }
                bytes.clear();
            }
        });

        let mut browser = Browser {
            process,
            commands,
            messages,
            session: None,
            last: 0,
            errors: Vec::new(),
            requests: Vec::new(),
            folder,
        };

        let made = browser.command("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": made["targetId"], "flatten": true });
        let attached = browser.command("Target.attachToTarget", attach);
        browser.session = Some(attached["sessionId"].as_str().unwrap().into());
        for part in ["Page", "Runtime", "Log", "Network", "Inspector"] {
            browser.command(&format!("{part}.enable"), json!({}));
        }

        browser
    }

    /// Loads a page again, also if only the part behind `#` is another one.
    pub(crate) fn open(&mut self, address: &str) {
        self.command("Page.navigate", json!({ "url": "about:blank" }));
        let loaded = self.command("Page.navigate", json!({ "url": address }));
        assert!(loaded.get("errorText").is_none(), "{address}: {loaded}");
        self.wait("document.readyState", "complete");
    }

    pub(crate) fn reload(&mut self) {
        self.js("window.isOld = true");
        self.command("Page.reload", json!({}));
        self.wait("window.isOld ? 'old' : document.readyState", "complete");
    }

    /// Returns the value of a JavaScript expression, or of its promise.
    #[track_caller]
    pub(crate) fn js(&mut self, script: &str) -> Value {
        self.evaluate(script).unwrap_or_else(|error| panic!("{script}: {error}"))
    }

    pub(crate) fn text(&mut self, script: &str) -> String {
        let value = self.js(script);
        value.as_str().unwrap_or_else(|| panic!("{script} is {value}, which is no text")).into()
    }

    fn evaluate(&mut self, script: &str) -> Result<Value, String> {
        let asked = json!({
            "expression": script, "awaitPromise": true, "returnByValue": true, "userGesture": true,
        });
        let mut answer = self.attempt("Runtime.evaluate", asked)?;
        match answer.get("exceptionDetails") {
            Some(details) => Err(described(details)),
            None => Ok(answer["result"]["value"].take()),
        }
    }

    /// Waits until a JavaScript expression has the wanted value. The expression may fail while a page is being
    /// replaced, or is not yet complete.
    #[track_caller]
    pub(crate) fn wait(&mut self, script: &str, wanted: impl Into<Value>) {
        let wanted: Value = wanted.into();
        let began = Instant::now();
        loop {
            let found = self.evaluate(script);
            if found.as_ref() == Ok(&wanted) {
                return;
            }
            let errors = &self.errors;
            assert!(
                began.elapsed() < PATIENCE,
                "after {PATIENCE:?} this is {found:?} and not {wanted}: {script}\nerrors: {errors:#?}"
            );
            thread::sleep(Duration::from_millis(30));
        }
    }

    /// Clicks on the middle of an element as a mouse does: on whatever is on top there.
    #[track_caller]
    pub(crate) fn click(&mut self, selector: &str) {
        let (x, y) = self.middle(selector);
        for kind in ["mouseMoved", "mousePressed", "mouseReleased"] {
            let button = if kind == "mouseMoved" { "none" } else { "left" };
            let event = json!({ "type": kind, "x": x, "y": y, "button": button, "clickCount": 1 });
            self.command("Input.dispatchMouseEvent", event);
        }
    }

    fn middle(&mut self, selector: &str) -> (f64, f64) {
        let position = self.js(&format!(
            "(() => {{ const element = document.querySelector({selector:?});
               element.scrollIntoView({{ block: 'center', behavior: 'instant' }});
               const {{ left, top, width, height }} = element.getBoundingClientRect();
               return [left + width / 2, top + height / 2]; }})()"
        ));
        (position[0].as_f64().unwrap(), position[1].as_f64().unwrap())
    }

    /// Presses a key: a key that writes a character, or another key by its name.
    pub(crate) fn press(&mut self, key: &str) {
        let code = match key {
            "Enter" => 13,
            "Escape" => 27,
            "End" => 35,
            "ArrowLeft" => 37,
            _ => u32::from(key.to_ascii_uppercase().as_bytes()[0]),
        };

        let mut event =
            json!({ "type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": code });
        if key.len() == 1 || key == "Enter" {
            event["text"] = key.replace("Enter", "\r").into();
        }
        self.command("Input.dispatchKeyEvent", event);

        let event =
            json!({ "type": "keyUp", "key": key, "code": key, "windowsVirtualKeyCode": code });
        self.command("Input.dispatchKeyEvent", event);
    }

    /// Writes into the field that has the focus.
    pub(crate) fn write(&mut self, text: &str) {
        self.command("Input.insertText", json!({ "text": text }));
    }

    /// Sets the page's size in its own pixels, each of which is `scale` dots wide.
    pub(crate) fn size(&mut self, width: u32, height: u32, scale: u32) {
        let size = json!({
            "width": width, "height": height, "deviceScaleFactor": scale, "mobile": scale > 1,
        });
        self.command("Emulation.setDeviceMetricsOverride", size);
    }

    /// Prefers `light` or `dark` colours.
    pub(crate) fn prefer(&mut self, colours: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": colours }]);
        self.command("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    /// Takes a picture of the page, as a PNG file.
    pub(crate) fn picture(&mut self) -> Vec<u8> {
        let picture = self.command("Page.captureScreenshot", json!({ "format": "png" }));
        from_base64(picture["data"].as_str().unwrap())
    }

    /// Returns the exceptions and the messages of errors since the browser was started.
    pub(crate) fn errors(&mut self) -> &[String] {
        self.js("0");
        &self.errors
    }

    /// Returns the addresses that were asked for.
    pub(crate) fn requests(&mut self) -> &[String] {
        self.js("0");
        &self.requests
    }

    fn command(&mut self, method: &str, parameters: Value) -> Value {
        self.attempt(method, parameters).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    fn attempt(&mut self, method: &str, parameters: Value) -> Result<Value, String> {
        self.last += 1;
        let mut message = json!({ "id": self.last, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }

        let bytes = format!("{message}\0");
        // If the browser has ended, this fails, and the answer does not come either.
        let _ = self.commands.write_all(bytes.as_bytes());

        let began = Instant::now();
        loop {
            match self.messages.recv_timeout(PATIENCE.saturating_sub(began.elapsed())) {
                Ok(mut message) if message["id"] == self.last => {
                    return match message.get("error") {
                        Some(error) => Err(error.to_string()),
                        None => Ok(message["result"].take()),
                    };
                }
                Ok(event) => self.note(&event),
                Err(RecvTimeoutError::Timeout) => {
                    panic!("the browser does not answer {method} within {PATIENCE:?}")
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let said = fs::read_to_string(self.folder.path().join("said"));
                    panic!("the browser has ended, at {method}; it said: {}", said.unwrap())
                }
            }
        }
    }

    fn note(&mut self, event: &Value) {
        let of = &event["params"];
        let error = match event["method"].as_str().unwrap_or_default() {
            "Network.requestWillBeSent" => {
                return self.requests.push(of["request"]["url"].as_str().unwrap().into());
            }
            "Inspector.targetCrashed" => panic!("the page has crashed"),
            "Page.javascriptDialogOpening" => panic!("the page asks: {of}"),
            "Runtime.exceptionThrown" => described(&of["exceptionDetails"]),
            "Runtime.consoleAPICalled" if of["type"] == "error" || of["type"] == "assert" => {
                of["args"].to_string()
            }
            "Log.entryAdded" if of["entry"]["level"] == "error" => {
                format!("{} {}", of["entry"]["text"], of["entry"]["url"])
            }
            _ => return,
        };

        self.errors.push(error);
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let group = format!("-{}", self.process.id());
        let mut kill = Command::new("kill");
        let _ = kill.args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Finds a Chromium on this machine.
fn program() -> Option<PathBuf> {
    if let Some(program) = env::var_os("FIREBRICK_CHROMIUM") {
        return Some(program.into());
    }

    let folders = env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    env::split_paths(&folders)
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .find(|program| program.is_file())
}

fn described(exception: &Value) -> String {
    let description = exception["exception"]["description"].as_str();
    description.map_or_else(|| exception.to_string(), str::to_owned)
}

fn from_base64(text: &str) -> Vec<u8> {
    let value = |byte| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    // Four letters hold three bytes, and a shorter last group holds fewer.
    let of_four = |four: &[u8]| {
        let bits = four.iter().fold(0, |bits, &byte| bits << 6 | u32::from(value(byte)));
        let bytes = (bits << (6 * (4 - four.len()))).to_be_bytes();
        bytes[1..four.len()].to_vec()
    };
    text.trim_end_matches('=').as_bytes().chunks(4).flat_map(of_four).collect()
}
