//! Handlers: async functions and closures whose arguments are extractors and a job.
//!
//! Four small traits instead of one, so that the compiler names the part of a handler that is wrong: [`Handler`] is
//! whatever can be called with a tuple of arguments and returns a future, [`Argument`] is one argument,
//! [`NamedArgument`] the same for a job that has no Rust type, [`Arguments`] and [`NamedArguments`] are the tuples.
//! The parameters `Via` only tell implementations apart and are always inferred.

use crate::error::Result;
use crate::extract::{Args, FromRun};
use crate::job::Job;
use crate::run::Run;
use crate::state::StateMap;

/// An async function or closure with up to eight arguments. It is implemented for all of them; which arguments there can
/// be, [`Worker::handle`](crate::Worker::handle) lists.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no handler",
    label = "not an async function of 1 to 8 arguments, or not `Send + Sync + 'static`",
    note = "a handler is an async function or closure that returns a `Result`, such as `async |cx: Context, job: SendEmail| …`",
    note = "name the type of each argument of a closure"
)]
pub trait Handler<A>: Send + Sync + 'static {
    /// The future that it returns.
    type Future: Future;

    /// Calls it.
    fn call(&self, arguments: A) -> Self::Future;
}

/// One argument of a handler of [`Worker::handle`](crate::Worker::handle).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no argument of a handler",
    label = "a handler takes an argument that is neither a job nor an extractor",
    note = "arguments are a type that implements `Job` (alone or in `Args`), `Context`, `State<T>`, `Epoch`, `JobId`, `ExecutionId` \
            and types that implement `FromRun`"
)]
pub trait Argument<Via>: Sized {
    /// [`IsJob`] or [`NoJob`].
    type Job;

    /// Reads it from the run.
    fn read(run: &Run) -> Result<Self>;

    /// Returns why no run can have it.
    fn check(state: &StateMap) -> Result<()>;
}

/// One argument of a handler of [`Worker::handle_named`](crate::Worker::handle_named).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no argument of a handler",
    label = "a handler takes an argument that is neither `Args` nor an extractor",
    note = "arguments are `Args<T>` of a type that implements `Deserialize`, `Context`, `State<T>`, `Epoch`, `JobId`, `ExecutionId` \
            and types that implement `FromRun`"
)]
pub trait NamedArgument<Via>: Sized {
    /// Reads it from the run.
    fn read(run: &Run) -> Result<Self>;

    /// Returns why no run can have it.
    fn check(state: &StateMap) -> Result<()>;
}

/// Tells the implementation for extractors apart.
pub enum ViaRun {}
/// Tells the implementation for jobs apart.
pub enum ViaJob {}
/// Tells the implementation for [`Args`] apart.
pub enum ViaArgs {}

/// The argument is the job.
pub struct IsJob<T>(std::marker::PhantomData<T>);
/// The argument is an extractor.
pub enum NoJob {}

impl<T: FromRun> Argument<ViaRun> for T {
    type Job = NoJob;

    fn read(run: &Run) -> Result<Self> {
        T::from_run(run)
    }

    fn check(state: &StateMap) -> Result<()> {
        T::check(state)
    }
}

impl<T: Job> Argument<ViaJob> for T {
    type Job = IsJob<T>;

    fn read(run: &Run) -> Result<Self> {
        Args::read(run).map(|Args(job)| job)
    }

    fn check(_: &StateMap) -> Result<()> {
        Ok(())
    }
}

impl<T: Job> Argument<ViaArgs> for Args<T> {
    type Job = IsJob<T>;

    fn read(run: &Run) -> Result<Self> {
        Args::read(run)
    }

    fn check(_: &StateMap) -> Result<()> {
        Ok(())
    }
}

impl<T: FromRun> NamedArgument<ViaRun> for T {
    fn read(run: &Run) -> Result<Self> {
        T::from_run(run)
    }

    fn check(state: &StateMap) -> Result<()> {
        T::check(state)
    }
}

impl<T: serde::de::DeserializeOwned> NamedArgument<ViaArgs> for Args<T> {
    fn read(run: &Run) -> Result<Self> {
        Args::read(run)
    }

    fn check(_: &StateMap) -> Result<()> {
        Ok(())
    }
}

/// Finds the job among arguments: at most one is.
#[diagnostic::on_unimplemented(
    message = "a handler takes one job, and this one takes two",
    label = "two of the arguments are jobs"
)]
pub trait And<Other> {
    /// The job of both.
    type Job;
}

impl And<NoJob> for NoJob {
    type Job = NoJob;
}

impl<T> And<IsJob<T>> for NoJob {
    type Job = IsJob<T>;
}

impl<T> And<NoJob> for IsJob<T> {
    type Job = IsJob<T>;
}

/// There is a job among the arguments.
#[diagnostic::on_unimplemented(
    message = "a handler takes a job, and this one takes none",
    label = "no argument of the handler implements `Job`",
    note = "add the job, as in `async fn send(cx: Context, job: SendEmail)`, or name its type: `.handle_named(\"email.send\", …)`"
)]
pub trait OneJob {
    /// The job.
    type Job: Job;
}

impl<T: Job> OneJob for IsJob<T> {
    type Job = T;
}

/// The arguments of a handler of [`Worker::handle`](crate::Worker::handle): a tuple.
pub trait Arguments<Via>: Sized {
    /// [`IsJob`] if one of them is the job.
    type Jobs;

    /// Reads all from the run.
    fn read(run: &Run) -> Result<Self>;

    /// Returns why no run can have one of them.
    fn check(state: &StateMap) -> Result<()>;
}

/// The arguments of a handler of [`Worker::handle_named`](crate::Worker::handle_named): a tuple.
pub trait NamedArguments<Via>: Sized {
    /// Reads all from the run.
    fn read(run: &Run) -> Result<Self>;

    /// Returns why no run can have one of them.
    fn check(state: &StateMap) -> Result<()>;
}

/// Implements the traits for one number of arguments. `$job` is the job of all arguments but the last.
macro_rules! arguments {
    ($(($argument:ident $via:ident))+; $jobs:ty; $($bound:tt)*) => {
        impl<F, Fut, $($argument,)+> Handler<($($argument,)+)> for F
        where
            F: Fn($($argument),+) -> Fut + Send + Sync + 'static,
            Fut: Future,
        {
            type Future = Fut;

            #[allow(non_snake_case, reason = "a value is named after its type")]
            fn call(&self, ($($argument,)+): ($($argument,)+)) -> Fut {
                self($($argument),+)
            }
        }

        impl<$($argument, $via,)+> Arguments<($($via,)+)> for ($($argument,)+)
        where
            $($argument: Argument<$via>,)+
            $($bound)*
        {
            type Jobs = $jobs;

            fn read(run: &Run) -> Result<Self> {
                Ok(($($argument::read(run)?,)+))
            }

            fn check(state: &StateMap) -> Result<()> {
                $($argument::check(state)?;)+
                Ok(())
            }
        }

        impl<$($argument, $via,)+> NamedArguments<($($via,)+)> for ($($argument,)+)
        where
            $($argument: NamedArgument<$via>,)+
        {
            fn read(run: &Run) -> Result<Self> {
                Ok(($($argument::read(run)?,)+))
            }

            fn check(state: &StateMap) -> Result<()> {
                $($argument::check(state)?;)+
                Ok(())
            }
        }
    };
}

/// The job of two or more arguments.
type Both<A, B> = <A as And<B>>::Job;

/// Implements the traits for each number of arguments: adds one argument to what is known of those before it.
macro_rules! each_number {
    ([$($known:tt)*] [$jobs:ty] [$($bound:tt)*]) => {};
    ([$($known:tt)*] [$jobs:ty] [$($bound:tt)*] ($next:ident $via:ident) $($rest:tt)*) => {
        arguments!($($known)* ($next $via); Both<$jobs, $next::Job>; $($bound)* $jobs: And<$next::Job>,);
        each_number!([$($known)* ($next $via)] [Both<$jobs, $next::Job>] [$($bound)* $jobs: And<$next::Job>,] $($rest)*);
    };
}

arguments!((A1 V1); A1::Job;);
each_number!([(A1 V1)] [A1::Job] [] (A2 V2) (A3 V3) (A4 V4) (A5 V5) (A6 V6) (A7 V7) (A8 V8));
