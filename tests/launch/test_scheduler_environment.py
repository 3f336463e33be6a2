import pytest

from dragoman.errors import DragomanError
from dragoman.launch.scheduler_environment import expand_counts, first_host, torchrun_variables

OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "3",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "PMIX_NAMESPACE": "658440193",
    "OMPI_MCA_orte_hnp_uri": "658440192.0;tcp://10.0.0.7:50033;tcp6://[fd00::2]:53429",
}
SLURM = {
    "SLURM_JOB_ID": "4711",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_STEP_NUM_TASKS": "5",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
    "SLURM_STEP_NODELIST": "gpu[07-08],big",
}


def test_an_environment_without_a_scheduler_is_left_alone():
    assert torchrun_variables({}) == {}


def test_the_variables_of_torchrun_are_kept():
    assert torchrun_variables({"RANK": "0", "WORLD_SIZE": "2", **OPEN_MPI}) == {}


def test_workers_of_mpirun_meet_on_the_host_of_mpirun():
    assert torchrun_variables(OPEN_MPI) == {
        "RANK": "2",
        "WORLD_SIZE": "3",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "10.0.0.7",
        "MASTER_PORT": "20193",
    }


def test_a_rendezvous_address_set_by_the_user_is_kept():
    world = torchrun_variables({**OPEN_MPI, "MASTER_ADDR": "a", "MASTER_PORT": "1234"})
    assert "MASTER_ADDR" not in world
    assert "MASTER_PORT" not in world


def test_workers_of_one_machine_meet_at_the_loopback_address():
    assert torchrun_variables({**OPEN_MPI, "OMPI_COMM_WORLD_SIZE": "2"})["MASTER_ADDR"] == "127.0.0.1"


def test_an_unknown_rendezvous_address_is_an_error_with_a_remedy():
    with pytest.raises(DragomanError, match="mpirun -x MASTER_ADDR=a"):
        torchrun_variables({**OPEN_MPI, "OMPI_MCA_orte_hnp_uri": ""})


def test_workers_of_srun_meet_on_the_first_host():
    assert torchrun_variables(SLURM) == {
        "RANK": "3",
        "WORLD_SIZE": "5",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "gpu07",
        "MASTER_PORT": "24711",
    }


def test_a_batch_script_of_slurm_is_a_single_process():
    assert torchrun_variables({"SLURM_JOB_ID": "4711", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"}) == {}


@pytest.mark.parametrize(
    ("listing", "first"),
    [
        ("a", "a"),
        ("a,b", "a"),
        ("n[3-5,9],x", "n3"),
        ("n[012]", "n012"),
        ("n[1-2]-ib,x", "n1-ib"),
        ("r1n[2,4]", "r1n2"),
    ],
)
def test_the_first_host_of_a_slurm_list_is_found(listing, first):
    assert first_host(listing) == first


def test_counts_of_slurm_are_expanded():
    assert expand_counts("2(x3),1,4(x2)") == [2, 2, 2, 1, 4, 4]
