//! Macros that define a Rust type and describe it like a schema.

/// Defines a `#[repr(C)]` struct and describes it. `hidden` fields exist in Rust and not in the
/// schema.
#[macro_export]
macro_rules! structure {
    ($name:ident { $($field:ident: $type:ty),* $(,)? }) => {
        $crate::structure!($name, $crate::kinds::PLAIN, {} { $($field: $type),* });
    };
    (versioned $name:ident { $($field:ident: $type:ty),* $(,)? }) => {
        $crate::structure!($name, $crate::kinds::VERSIONED, { root_size: u16 } { $($field: $type),* });
    };
    ($name:ident, $shape:expr, { $($hidden:ident: $of:ty)? } { $($field:ident: $type:ty),* }) => {
        #[derive(ZeroCopy, Clone, Copy)]
        #[repr(C)]
        pub struct $name { $(pub $hidden: $of,)? $(pub $field: $type),* }

        impl $crate::kinds::Type for $name {
            fn kind() -> String {
                let fields: Vec<String> = vec![$(format!(
                    "[{},{}]",
                    $crate::kinds::quoted(stringify!($field)),
                    <$type as $crate::kinds::Type>::kind(),
                )),*];
                let end = $shape.0;
                format!(
                    "{{\"kind\":\"struct\",\"name\":\"{}\",\"fields\":[{}]{end}}}",
                    stringify!($name),
                    fields.join(","),
                )
            }
            fn layout() -> String {
                let fields: Vec<String> = vec![$(format!(
                    "{}{}:{}",
                    <$type as $crate::kinds::Type>::PREFIX,
                    $crate::kinds::escaped(stringify!($field)),
                    <$type as $crate::kinds::Type>::layout(),
                )),*];
                format!("{}{}}}", $shape.1, fields.join(","))
            }
            fn json(&self, buf: &musli_zerocopy::Buf) -> $crate::kinds::Json {
                let mut members = Vec::new();
                $crate::kinds::Fields::all_members(self, buf, &mut members)?;
                Ok(format!("{{{}}}", members.join(",")))
            }
        }

        impl $crate::kinds::Fields for $name {
            const NAME: &'static str = stringify!($name);
            fn all_members(
                &self,
                buf: &musli_zerocopy::Buf,
                out: &mut Vec<String>,
            ) -> Result<(), $crate::kinds::Wrong> {
                $($crate::kinds::Type::members(&self.$field, stringify!($field), buf, out)?;)*
                Ok(())
            }
            fn all_offsets(base: usize, out: &mut Vec<String>) {
                $(<$type as $crate::kinds::Type>::offsets(
                    stringify!($field),
                    base + std::mem::offset_of!($name, $field),
                    out,
                );)*
            }
        }
    };
}

/// Defines an enum without payloads.
#[macro_export]
macro_rules! enumeration {
    ($name:ident: $repr:ident, $kind:literal, $short:literal { $($variant:ident),* $(,)? }) => {
        #[derive(ZeroCopy, Clone, Copy)]
        #[repr($repr)]
        #[allow(non_camel_case_types)]
        pub enum $name { $($variant),* }

        impl $crate::kinds::Type for $name {
            fn kind() -> String {
                let names = [$($crate::kinds::quoted(stringify!($variant))),*].join(",");
                format!("{{\"kind\":\"{}\",\"variants\":[{names}]}}", $kind)
            }
            fn layout() -> String {
                let names = [$($crate::kinds::escaped(stringify!($variant))),*].join(",");
                format!("{}({names})", $short)
            }
            fn json(&self, _: &musli_zerocopy::Buf) -> $crate::kinds::Json {
                Ok(match self { $(Self::$variant => $crate::kinds::quoted(stringify!($variant))),* })
            }
        }
    };
}

/// Defines an enum whose variants may have data: a union.
#[macro_export]
macro_rules! variants {
    ($name:ident { $($variant:ident $(($type:ty))?),* $(,)? }) => {
        #[derive(ZeroCopy, Clone, Copy)]
        #[repr(u8)]
        #[allow(non_camel_case_types)]
        pub enum $name { $($variant $(($type))?),* }

        impl $crate::kinds::Type for $name {
            fn kind() -> String {
                let all: Vec<String> = vec![$({
                    let payload: Option<String> = None$(.or(Some(<$type as $crate::kinds::Type>::kind())))?;
                    let payload = payload.unwrap_or("null".into());
                    format!("[{},{payload}]", $crate::kinds::quoted(stringify!($variant)))
                }),*];
                format!("{{\"kind\":\"union\",\"variants\":[{}]}}", all.join(","))
            }
            fn layout() -> String {
                let all: Vec<String> = vec![$({
                    let payload: Option<String> = None$(.or(Some(<$type as $crate::kinds::Type>::layout())))?;
                    let payload = payload.map_or(String::new(), |layout| format!(":{layout}"));
                    format!("{}{payload}", $crate::kinds::escaped(stringify!($variant)))
                }),*];
                format!("{{|{}|}}", all.join(","))
            }
            fn json(&self, buf: &musli_zerocopy::Buf) -> $crate::kinds::Json {
                let _ = buf;
                $crate::variants!(@json self buf $($variant $(($type))?),*)
            }
        }
    };
    (@json $self:ident $buf:ident $($variant:ident $(($type:ty))?),*) => {{
        $($crate::variants!(@one $self $buf $variant $(($type))?);)*
        unreachable!()
    }};
    (@one $self:ident $buf:ident $variant:ident ($type:ty)) => {
        if let Self::$variant(payload) = $self {
            let json = $crate::kinds::Type::json(payload, $buf)?;
            return Ok(format!("{{{}:{json}}}", $crate::kinds::quoted(stringify!($variant))));
        }
    };
    (@one $self:ident $buf:ident $variant:ident) => {
        if let Self::$variant = $self {
            return Ok($crate::kinds::quoted(stringify!($variant)));
        }
    };
}
